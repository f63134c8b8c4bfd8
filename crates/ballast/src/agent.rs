//! `ballast agent`: what runs inside a pod beside a database server.
//!
//! **What always holds.** Whatever goes wrong is also the termination message, so that `kubectl describe pod` says it.

pub mod arguments;
mod backup;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use ballast_agent::{Database, Flavour, Run, Secret, Signals};

use crate::arguments::{AgentCommand, AgentRunArguments, Server};
use crate::configuration::Environment;
use crate::failure::{Explain as _, Failure};
use crate::logging;
use crate::terminal::{Colour, say};

/// Does what was typed.
///
/// # Errors
/// The server was never started, and why.
pub fn agent(command: AgentCommand, environment: &Environment) -> Result<ExitCode, Failure> {
    match command {
        AgentCommand::Install { directory } => {
            let place = ballast_agent::install(&directory).what("nothing was installed")?;
            if !drydock_images::is_static(&place).unwrap_or(true) {
                say(
                    "this build needs libraries that other images may lack; `make build` makes one that does not",
                );
            }
            Ok(ExitCode::SUCCESS)
        }
        AgentCommand::Run(arguments) => {
            let log = arguments.termination_log.clone();
            run(arguments, environment).inspect_err(|failure| leave(&log, &failure.to_string()))
        }
        AgentCommand::Backup(command) => backup::backup(command, environment),
    }
}

fn run(arguments: AgentRunArguments, environment: &Environment) -> Result<ExitCode, Failure> {
    // Before any thread is there: who is the first process of its container gets no signal that it does not expect.
    let signals = Signals::hold().what("can't run a server")?;
    logging::start(&arguments.log, "info", Colour::on(&io::stderr(), environment))?;
    let log = arguments.termination_log.clone();
    let flavour = flavour(arguments.server);
    let finished =
        ballast_agent::run(request(arguments)?, &signals).what(format_args!("{flavour} can't run"))?;
    if let Some(message) = &finished.message {
        say(message);
        leave(&log, message);
    }
    Ok(ExitCode::from(finished.ended.code()))
}

fn request(arguments: AgentRunArguments) -> Result<Run, Failure> {
    let read = |file: Option<&Path>| file.map(Secret::read).transpose().what("no password");
    let superuser = read(arguments.superuser_password_file.as_deref())?;
    let password = read(arguments.user_password_file.as_deref())?;
    // The three are given together or not at all.
    let database = match (arguments.database, arguments.user, password) {
        (Some(name), Some(user), Some(password)) => Some(Database { name, user, password }),
        _ => None,
    };
    Ok(Run {
        flavour: flavour(arguments.server),
        volume: arguments.volume,
        superuser,
        database,
        member: arguments.member,
        upgrade: arguments.upgrade,
        listen: arguments.listen,
        arguments: arguments.arguments,
    })
}

fn flavour(server: Server) -> Flavour {
    match server {
        Server::Postgres => Flavour::Postgres,
        Server::Mariadb => Flavour::Mariadb,
        Server::Mysql => Flavour::Mysql,
        Server::Etcd => Flavour::Etcd,
    }
}

/// Leaves a last message where somebody looks for it.
fn leave(log: &Path, message: &str) {
    if let Err(error) = ballast_agent::leave(log, message) {
        say(format_args!("can't write {}: {error}", log.display()));
    }
}
