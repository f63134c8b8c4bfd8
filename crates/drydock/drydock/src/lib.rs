//! A Kubernetes for one machine: start one in a test, or serve one.
