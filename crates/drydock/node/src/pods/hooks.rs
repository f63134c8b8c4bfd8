//! What a container has done after its start and before its end.
//!
//! A hook has no limit of its own. As a kubelet has it, an HTTP one fails only where nobody answers, and a socket is never
//! connected to.

use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;
use tokio::sync::mpsc;

use super::worker::Told;
use crate::probes::ask::{self, Bad, Target};
use crate::probes::page;

/// Does what a hook says, for as long as that takes: whoever has less time ends the container with it.
pub(super) async fn run_hook(
    target: &Target,
    hook: &LifecycleHandler,
    tell: &mpsc::UnboundedSender<Told>,
) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        return ask::exec(target, action, Duration::MAX).await.map_err(Bad::into_words);
    }
    if let Some(action) = &hook.http_get {
        if let Some(address) = page::visit(target, action).await.map_err(Bad::into_words)? {
            let _gone = tell.send(Told::HookInTheClear { address });
        }
        return Ok(());
    }
    if let Some(sleep) = &hook.sleep {
        let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        return Ok(());
    }
    // The API takes a socket too, and a kubelet has never connected to one.
    Err("invalid handler".to_owned())
}
