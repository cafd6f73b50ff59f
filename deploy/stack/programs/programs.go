//go:build programs

// Package programs names the servers whose versions go.mod pins; deploy/stack/kubernetes.py builds them.
package programs

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
)
