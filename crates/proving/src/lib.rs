//! Crash-at-every-step and fault harness that every operator is run through.
