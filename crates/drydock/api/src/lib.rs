//! The REST surface of the cluster.
