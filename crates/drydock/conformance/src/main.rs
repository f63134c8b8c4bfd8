//! Plays the recorded dialogues against the cluster of KUBECONFIG.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use drydock_conformance::{Case, PlayError, clean_up, play, record};
use tokio::signal::unix::{SignalKind, signal};

/// Plays the recorded dialogues against the cluster of KUBECONFIG.
#[derive(Debug, Parser)]
struct Arguments {
    /// Write the answers that come into the case files. Only ever against a real kube-apiserver.
    #[arg(long)]
    record: bool,
    /// Case files.
    #[arg(required = true)]
    cases: Vec<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let client = kube::Client::try_default().await.context("no cluster: set KUBECONFIG")?;
    let (mut passed, mut failed) = (0, 0);
    for path in &arguments.cases {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let case = Case::parse(&text).with_context(|| path.display().to_string())?;
        let word =
            format!("{:x}", std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_micros());
        if arguments.record {
            let recorded = unless_interrupted(&client, &word, record(&client, &case, &word))
                .await
                .with_context(|| path.display().to_string())?;
            std::fs::write(path, recorded.render())?;
            println!("recorded {} ({} steps)", path.display(), recorded.steps.len());
            continue;
        }
        let mismatches = unless_interrupted(&client, &word, play(&client, &case, &word))
            .await
            .with_context(|| path.display().to_string())?;
        passed += case.steps.len() - mismatches.len();
        failed += mismatches.len();
        println!("{} {}", if mismatches.is_empty() { "ok  " } else { "FAIL" }, path.display());
        for mismatch in mismatches {
            println!("  {}\n{}", mismatch.step, mismatch.diff);
        }
    }
    if !arguments.record {
        println!("{passed} passed, {failed} failed");
    }
    anyhow::ensure!(failed == 0, "{failed} answers differ");
    Ok(())
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
