//! Chance that can be repeated, and how much of it is wanted.

use std::time::{SystemTime, UNIX_EPOCH};

/// Choices that `BALLAST_SOAK_SEED` repeats.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new() -> Self {
        let time = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let seed = number("BALLAST_SOAK_SEED").unwrap_or_else(time);
        println!("BALLAST_SOAK_SEED={seed}");
        Dice(seed)
    }

    /// Others, which go their own way from here.
    pub fn split(&mut self) -> Self {
        self.of(2);
        Dice(self.0 ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// One of so many.
    pub fn of(&mut self, many: u64) -> u64 {
        // Knuth's constants for a generator of 64 bits; the upper ones are the better ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % many
    }
}

/// How many rounds: those of `make soak`, or a few.
pub fn rounds(few: u32) -> u32 {
    number("BALLAST_SOAK").map_or(few, |rounds| u32::try_from(rounds).unwrap())
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}
