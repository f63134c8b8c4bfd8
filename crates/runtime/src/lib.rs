//! Carries plans out: watches, caches, queue, apply, status, events, lease, metrics.
