//! `ballast gordon-server`: the small web server that stands for the third seed's image, in a pod of its own.

use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::net::TcpListener;

use crate::failure::{Explain as _, Failure};
use crate::signals::Signals;

/// Serves until a signal comes. One thread: there may be a hundred such pods.
///
/// # Errors
/// The address can't be listened on.
pub fn serve(listen: SocketAddr) -> Result<ExitCode, Failure> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().what("can't start")?;
    executor.block_on(async {
        let mut signals = Signals::listen()?;
        let listener = TcpListener::bind(listen).await.what(format!("can't listen on {listen}"))?;
        let until = async {
            signals.next().await;
        };
        ballast_gordon_web::serve(listener, host_name(), until).await.what("can't serve")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// In a pod, the pod's name.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
