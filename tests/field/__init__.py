"""Reports from systems that do this job, as black-box cases; each test's name carries the case's id."""
