//! The one binary. Parses arguments, wires the rest, prints.
//!
//! | file | what it is for |
//! | --- | --- |
//! | `arguments`, `configuration` | what can be typed; what it means |
//! | `up` | a Kubernetes in one process, with every operator in it |
//! | `record`, `status`, `down` | finding one that runs, what it says, stopping it |
//! | `node` | the process beside it that runs pods |
//! | `run`, `cluster`, `operators` | the operators, against a cluster that is somewhere else |
//! | `plan` | what the operators would do |
//! | `image` | the images that pods of this machine can run |
//! | `gordon_server` | what runs in one of them |
//! | `agent` | what runs in any of them, beside a database server |
//! | `failure`, `terminal`, `logging`, `shell`, `version` | what people read |
//! | `signals`, `memory` | being told to stop; being small |
//!
//! **What always holds**
//!
//! - Standard output is for what was asked for; everything else goes to standard error.
//! - What goes wrong is one line: what, why, what to do next. The exit code is 1.
//! - No decision about a service or an object is made here.

pub mod agent;
pub mod arguments;
pub mod cluster;
pub mod configuration;
pub mod down;
pub mod failure;
pub mod gordon_server;
pub mod image;
pub mod logging;
pub mod memory;
pub mod node;
pub mod operators;
pub mod plan;
pub mod record;
pub mod run;
pub mod shell;
pub mod signals;
pub mod status;
pub mod terminal;
pub mod up;
pub mod version;
