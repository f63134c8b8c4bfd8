//! Every operator that this binary holds, and running them.

use ballast_engines::{memcached, mysql};
use ballast_gordon::GordonOperator;
use ballast_memcached::MemcachedOperator;
use ballast_mysql::{MySQLBackupOperator, MySQLOperator};
use ballast_runtime::{Health, Manager, NoEngine, Options, RunError};
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::plan::{Asking, Planner};

pub use ballast_engines::Reach;

/// The image of this program. Pods of databases get their agent from it.
pub const THIS_IMAGE: &str = concat!("ballast:", env!("CARGO_PKG_VERSION"));

/// All of them, to be asked for plans.
pub fn planners(client: &Client, reach: &Reach, agent_image: &str) -> Vec<Box<dyn Planner>> {
    let agents = mysql::MySQL::new(reach.clone(), client.clone());
    let agent_image = agent_image.to_owned();
    vec![
        Box::new(Asking::new(MemcachedOperator, memcached::Memcached::new(reach.clone()))),
        Box::new(Asking::new(GordonOperator, NoEngine)),
        Box::new(Asking::new(MySQLOperator { agent_image: agent_image.clone() }, agents.clone())),
        Box::new(Asking::new(MySQLBackupOperator { agent_image }, agents)),
    ]
}

/// All of them, to be run.
fn manager(client: Client, reach: &Reach, agent_image: &str, options: Options) -> Manager {
    let agents = mysql::MySQL::new(reach.clone(), client.clone());
    let agent_image = agent_image.to_owned();
    Manager::new(client, options)
        .register(MemcachedOperator, memcached::Memcached::new(reach.clone()))
        .register(GordonOperator, NoEngine)
        .register(MySQLOperator { agent_image: agent_image.clone() }, agents.clone())
        .register(MySQLBackupOperator { agent_image }, agents)
}

/// What they are called.
pub fn names() -> Vec<&'static str> {
    ballast_packaging::parts().iter().map(|part| part.name).collect()
}

/// The operators at work. Dropping this leaves them at work until the process ends.
#[derive(Debug)]
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
    over: bool,
    health: Health,
}

/// Begins to run them, as whoever the client is. Pods are reached as is said, which need not be by the same client.
pub fn run(client: Client, reach: &Reach, options: Options) -> Running {
    run_with(THIS_IMAGE, client, reach, options)
}

/// The same, with the image that pods get their agent from.
pub fn run_with(agent_image: &str, client: Client, reach: &Reach, options: Options) -> Running {
    let stop = CancellationToken::new();
    let manager = manager(client, reach, agent_image, options);
    let health = manager.health();
    Running { task: tokio::spawn(manager.run(stop.clone())), stop, over: false, health }
}

impl Running {
    /// Waits until they end by themselves, and says why. Nobody asked them to.
    pub async fn ended(&mut self) -> Failure {
        let ended = (&mut self.task).await;
        self.over = true;
        match ended {
            Ok(Err(error @ RunError::Listen(_))) => anyhow::Error::from(error).into(),
            Ok(Err(lost @ RunError::LeaseLost { .. })) => {
                Failure::from(anyhow::Error::from(lost)).advise("start again, to stand by for the next turn")
            }
            Ok(Ok(())) => Failure::new("the operators ended without being asked to"),
            Err(_) => Failure::new("the operators ended by a panic: this is a bug"),
        }
    }

    /// How they are.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Lets them finish what they are doing.
    pub async fn stop(self) {
        self.stop.cancel();
        if !self.over {
            // Whatever they ended by, they were to end.
            let _ = self.task.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_shipped_is_what_is_run() {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(nowhere).unwrap();
        let shipped: Vec<_> = ballast_packaging::parts().into_iter().map(|part| part.resource).collect();
        let planned: Vec<_> =
            planners(&client, &Reach::inside(), THIS_IMAGE).iter().map(|planner| planner.kind()).collect();
        assert_eq!(shipped, planned);
    }
}
