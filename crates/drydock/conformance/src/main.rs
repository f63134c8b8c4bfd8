//! Plays the recorded dialogues against the cluster of KUBECONFIG.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use drydock_conformance::{Case, PlayError, clean_up, play, record};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Plays the recorded dialogues against the cluster of KUBECONFIG.
#[derive(Debug, Parser)]
struct Arguments {
    /// Write the answers that come into the case files. Only ever against a real kube-apiserver.
    #[arg(long)]
    record: bool,
    /// How many cases are played at once. Those that need a node wait most of the time.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    at_once: usize,
    /// Case files.
    #[arg(required = true)]
    cases: Vec<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut config = kube::Config::infer().await.context("no cluster: set KUBECONFIG")?;
    // A refusal is an answer, too.
    config.default_retry = false;
    let client = kube::Client::try_from(config).context("no cluster: set KUBECONFIG")?;
    let places = Arc::new(Semaphore::new(arguments.at_once));
    let mut playing = JoinSet::new();
    for (number, path) in arguments.cases.into_iter().enumerate() {
        let (client, places) = (client.clone(), places.clone());
        playing.spawn(async move {
            let _place = places.acquire().await?;
            let counts = one(&client, &path, number, arguments.record).await;
            counts.with_context(|| path.display().to_string())
        });
    }
    let (mut passed, mut failed, mut broken) = (0, 0, None);
    while let Some(counts) = playing.join_next().await {
        // The others come to their end, and clean up.
        match counts? {
            Ok(counts) => (passed, failed) = (passed + counts.passed, failed + counts.failed),
            Err(error) => broken = broken.or(Some(error)),
        }
    }
    if let Some(error) = broken {
        return Err(error);
    }
    if !arguments.record {
        println!("{passed} passed, {failed} failed");
    }
    anyhow::ensure!(failed == 0, "{failed} answers differ");
    Ok(())
}

struct Counts {
    passed: usize,
    failed: usize,
}

async fn one(client: &kube::Client, path: &Path, number: usize, recording: bool) -> Result<Counts> {
    let case = Case::parse(&std::fs::read_to_string(path)?)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_micros();
    let word = format!("{now:x}n{number}");
    if recording {
        let recorded = unless_interrupted(client, &word, record(client, &case, &word)).await?;
        std::fs::write(path, recorded.render())?;
        println!("recorded {} ({} steps)", path.display(), recorded.steps.len());
        return Ok(Counts { passed: 0, failed: 0 });
    }
    let mismatches = unless_interrupted(client, &word, play(client, &case, &word)).await?;
    let mut told = format!("{} {}\n", if mismatches.is_empty() { "ok  " } else { "FAIL" }, path.display());
    for mismatch in &mismatches {
        told.push_str(&format!("  {}\n{}\n", mismatch.step, mismatch.diff));
    }
    print!("{told}");
    Ok(Counts { passed: case.steps.len() - mismatches.len(), failed: mismatches.len() })
}

/// Waits for a run, and cleans up after one that is interrupted.
async fn unless_interrupted<T>(
    client: &kube::Client,
    word: &str,
    run: impl Future<Output = Result<T, PlayError>>,
) -> Result<T> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        result = run => Ok(result?),
        _ = tokio::signal::ctrl_c() => {
            clean_up(client, word).await?;
            anyhow::bail!("interrupted")
        }
        _ = terminated.recv() => {
            clean_up(client, word).await?;
            anyhow::bail!("terminated")
        }
    }
}
