//! What a person sees of `ballast`: the program itself, as it is built, by its command line and the real kubectl.
//!
//! One program holds all of it, so that it is linked once and what mostly waits waits side by side.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is the answer")]

mod support;

mod agent;
mod agent_backup;
mod agent_backup_servers;
mod agent_servers;
mod agent_versions;
mod command_line;
mod deployed;
mod directory;
mod durable;
mod etcd;
mod gordon;
mod house;
mod images;
mod mysql;
mod mysql_crashes;
mod mysql_damage;
mod mysql_days;
mod mysql_full;
mod mysql_passwords;
mod mysql_refusals;
mod mysql_seed;
mod mysql_survives;
mod node_gordon;
mod node_kubectl;
mod node_rollout;
mod node_services;
mod node_stop;
mod node_trouble;
mod node_volumes;
mod node_walk;
mod outside;
mod plans;
mod postgres;
mod refusals;
mod running;
mod seed_walk;
mod soak;
mod status;
mod undeploy;
mod workload;
