//! `ballast`

use std::io;
use std::process::ExitCode;

use ballast::arguments::{
    Arguments, Command, DownArguments, LogArguments, Output, PlanArguments, RunArguments, StatusArguments,
    UpArguments, VersionArguments,
};
use ballast::configuration::{Environment, Plan, Run, Up, Which, deploy};
use ballast::failure::{Explain as _, Failure};
use ballast::terminal::{Colour, print};
use ballast::up::Stopped;
use ballast::version::Version;
use ballast::{agent, arguments, down, gordon_server, image, logging, node, plan, run, status, up};
use clap::Parser as _;
use clap::error::ErrorKind;
use jiff::Timestamp;
use serde_json::Value;
use tokio::runtime::Runtime;

/// What a process that a signal ended is known by.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    // Before anything else: the keeper of a node's pods is this program too, and has one thread.
    drydock_sandbox::hook();
    let environment = Environment::of_process();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&arguments::without_hidden(error)),
    };
    match carry_out(arguments.command, &environment) {
        Ok(code) => code,
        Err(failure) => {
            failure.complain(&environment);
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command, environment: &Environment) -> Result<ExitCode, Failure> {
    match command {
        Command::Up(arguments) => bring_up(&arguments, environment),
        Command::Status(arguments) => show_status(&arguments, environment),
        Command::Down(DownArguments { which }) => {
            let which = Which::new(&which, environment)?;
            show(&executor()?.block_on(down::down(&which))?)
        }
        Command::Node(log) => run_node(&log, environment),
        Command::GordonServer(arguments) => gordon_server::serve(arguments.listen),
        Command::Run(arguments) => run_operators(&arguments, environment),
        Command::Plan(arguments) => show_plan(&arguments, environment),
        Command::Agent(command) => agent::agent(command, environment),
        Command::Image(command) => show(&image::image(&command, environment)?),
        Command::Crds => print_yaml(&ballast_packaging::definitions()),
        Command::Manifests(arguments) => print_yaml(&ballast_packaging::manifests(&deploy(&arguments)?)),
        Command::Version(VersionArguments { output }) => {
            let version = Version::current();
            show(&match output {
                Output::Text => format!("{version}\n"),
                Output::Json => format!("{}\n", serde_json::to_string(&version).what("no JSON")?),
            })
        }
    }
}

fn bring_up(arguments: &UpArguments, environment: &Environment) -> Result<ExitCode, Failure> {
    logging::start(&arguments.log, "warn", Colour::on(&io::stderr(), environment))?;
    let up = Up::new(arguments, environment)?;
    until_stopped(async { up::up(&up, environment).await })
}

fn show_status(arguments: &StatusArguments, environment: &Environment) -> Result<ExitCode, Failure> {
    let which = Which::new(&arguments.which, environment)?;
    let status = executor()?.block_on(status::status(&which, environment))?;
    show(&match arguments.output {
        Output::Text => status.text(Timestamp::now(), Colour::on(&io::stdout(), environment)),
        Output::Json => status.json()?,
    })
}

fn run_node(log: &LogArguments, environment: &Environment) -> Result<ExitCode, Failure> {
    logging::start(log, "warn", Colour::on(&io::stderr(), environment))?;
    node::run(environment)
}

fn run_operators(arguments: &RunArguments, environment: &Environment) -> Result<ExitCode, Failure> {
    logging::start(&arguments.log, "info", Colour::on(&io::stderr(), environment))?;
    let run = Run::new(arguments, environment)?;
    until_stopped(async { run::run(&run).await })
}

fn show_plan(arguments: &PlanArguments, environment: &Environment) -> Result<ExitCode, Failure> {
    let plan = Plan::new(arguments, environment)?;
    let planned = executor()?.block_on(plan::plan(&plan))?;
    show(&match arguments.output {
        Output::Text => planned.text(Colour::on(&io::stdout(), environment)),
        Output::Json => planned.json(),
    })?;
    for failure in &planned.failures {
        failure.complain(environment);
    }
    Ok(ExitCode::from(planned.exit_code()))
}

fn until_stopped(work: impl Future<Output = Result<Stopped, Failure>>) -> Result<ExitCode, Failure> {
    let executor = executor()?;
    let stopped = executor.block_on(work)?;
    // What is left was told to stop, and is not waited for.
    executor.shutdown_background();
    Ok(match stopped {
        Stopped::InOrder => ExitCode::SUCCESS,
        Stopped::AtOnce => ExitCode::from(INTERRUPTED),
    })
}

/// Two threads: one more than a person waits for.
fn executor() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .what("can't start threads")
}

fn print_yaml(objects: &[Value]) -> Result<ExitCode, Failure> {
    show(&ballast_packaging::yaml(objects).what("no YAML")?)
}

fn show(text: &str) -> Result<ExitCode, Failure> {
    print(text).what("can't print")?;
    Ok(ExitCode::SUCCESS)
}

/// What was typed is no command, or a question about commands. Code 2 is for plans that would change something.
fn usage(error: &clap::Error) -> ExitCode {
    // Where nobody reads it, nothing is lost.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
