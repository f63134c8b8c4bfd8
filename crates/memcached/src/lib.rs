//! Memcached: the resource people write, its validation, its plan.
