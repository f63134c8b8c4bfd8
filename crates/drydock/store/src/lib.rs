//! Revisions, watches, snapshots, durability: what the cluster remembers.
