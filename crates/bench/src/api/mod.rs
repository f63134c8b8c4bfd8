//! How fast the API is over TLS with every write on disk, and what it weighs; beside a real kube-apiserver with its
//! etcd, by the same client, on the same machine, in the same run.

mod connection;
mod load;
mod rounds;
mod watching;

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::DeleteParams};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::block_in_place;

use crate::{
    directory,
    started::{Started, processes, processor, resident},
    table::Table,
};

use connection::Server;
use load::{Load, load};

/// Connections of what is asked as fast as it is answered.
const CONNECTIONS: usize = 16;
/// ConfigMaps that are created.
const MANY: usize = 13_000;
/// Custom resources that are listed.
const LISTED: usize = 1_000;
/// How long is asked for in a round, where nothing else ends it.
const WHILE: Duration = Duration::from_secs(2);
/// Between what weighs and being weighed.
const BREATH: Duration = Duration::from_secs(2);
/// Few objects and many: what is flat is as fast with these as with those.
const SIZES: [usize; 2] = [1_000, 100_000];
/// How many more are created each time, to see how fast that is.
const SAMPLE: usize = 3_000;
/// How often each is measured, by turns: whatever else this machine does concerns all.
const ROUNDS: usize = 5;

const NAMESPACE: &str = "bench";
const MAPS: &str = "/api/v1/namespaces/bench/configmaps";
const CUSTOM: &str = "/apis/cache.example.com/v1alpha1/namespaces/bench/memcacheds";

/// `ballast up` on a directory, as plain a Kubernetes as the other one.
fn up(ballast: &Path, directory: &TempDir) -> Result<(Started, f64)> {
    let place = directory.path().to_str().context("a path that is no text")?;
    Started::up(ballast, &["--no-node", "--no-operators", "--data-dir", place])
}

/// A server, and the processes that it is made of.
struct Measured {
    server: Server,
    parts: Vec<(&'static str, u32)>,
}

impl Measured {
    async fn of(kubeconfig: &Path, parts: impl FnOnce(&Server) -> Vec<(&'static str, u32)>) -> Result<Self> {
        let server = Server::of(kubeconfig).await?;
        ballast::up::install(&server.client, ballast_packaging::foundation()).await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        ballast::up::install(&server.client, vec![namespace]).await?;
        let parts = parts(&server);
        Ok(Self { server, parts })
    }

    /// What each of its processes holds, in MB.
    fn memory(&self) -> Result<Vec<f64>> {
        self.parts.iter().map(|(_, process)| resident(*process)).collect()
    }

    /// The time that all of them have spent on a processor, in seconds.
    fn processor(&self) -> f64 {
        self.parts.iter().filter_map(|(_, process)| processor(*process)).sum()
    }

    fn create(&self, first: usize, count: usize) -> Result<Load> {
        block_in_place(|| {
            load(&self.server, CONNECTIONS, |number, _| {
                (number < count).then(|| self.server.request("POST", MAPS, &config_map(first + number)))
            })
        })
    }

    /// Gets of any of so many.
    fn get(&self, count: usize) -> Result<Load> {
        // A step that has no factor in common with the number of objects comes by all of them.
        self.read(|number| format!("{MAPS}/map-{}", number * 7919 % count))
    }

    fn list(&self) -> Result<Load> {
        self.read(|_| CUSTOM.to_owned())
    }

    fn read(&self, path: impl Fn(usize) -> String) -> Result<Load> {
        block_in_place(|| {
            load(&self.server, CONNECTIONS, |number, elapsed| {
                (elapsed < WHILE).then(|| self.server.request("GET", &path(number), ""))
            })
        })
    }

    /// What each request of a measurement cost on a processor, in microseconds. Unlike their number per second, it
    /// does not depend on what else this machine does.
    fn costing(&self, measure: impl FnOnce() -> Result<Load>) -> Result<(Load, f64)> {
        let before = self.processor();
        let load = measure()?;
        let each = (self.processor() - before) / load.count() as f64 * 1e6;
        Ok((load, each))
    }

    /// What is listed.
    fn custom(&self) -> Result<()> {
        let made = block_in_place(|| {
            load(&self.server, CONNECTIONS, |number, _| {
                (number < LISTED).then(|| self.server.request("POST", CUSTOM, &memcached(number)))
            })
        });
        made.map(drop)
    }
}

fn config_map(number: usize) -> String {
    let data = json!({"host": "127.0.0.1", "port": "11211", "comment": "as small as most of them are"});
    let metadata = json!({"name": format!("map-{number}"), "labels": {"app": "bench"}});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}).to_string()
}

fn memcached(number: usize) -> String {
    let metadata = json!({"name": format!("cache-{number}")});
    let spec = json!({"size": 3, "version": "1.6.9"});
    json!({"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "metadata": metadata, "spec": spec})
        .to_string()
}

/// The processes of a real API server that listens on a port of this machine: itself, and its etcd.
fn real_parts(server: &Server) -> Vec<(&'static str, u32)> {
    let words = |process: u32| -> Option<Vec<String>> {
        let words = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        Some(words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
    };
    let after = |words: &[String], flag: &str| -> Option<String> {
        words.iter().zip(words.iter().skip(1)).find(|(word, _)| *word == flag).map(|(_, next)| next.clone())
    };
    let all: Vec<(u32, Vec<String>)> =
        processes().into_iter().flatten().filter_map(|process| Some((process, words(process)?))).collect();
    let api = all.iter().find(|(_, words)| {
        words.first().is_some_and(|program| program.ends_with("kube-apiserver"))
            && after(words, "--secure-port") == Some(server.port.to_string())
    });
    let Some((api, words)) = api else { return Vec::new() };
    let address = after(words, "--etcd-servers");
    let etcd =
        all.iter().find(|(_, words)| address.is_some() && after(words, "--listen-client-urls") == address);
    [Some(("kube-apiserver", *api)), etcd.map(|(etcd, _)| ("etcd", *etcd))].into_iter().flatten().collect()
}

/// What is measured: ours, and a real one where one is given.
struct Servers {
    ours: Measured,
    theirs: Option<Measured>,
    _started: Started,
    _directory: TempDir,
}

impl Servers {
    async fn start(ballast: &Path, real: Option<&Path>) -> Result<Self> {
        let directory = directory()?;
        let (started, _) = up(ballast, &directory)?;
        let ours = Measured::of(&started.kubeconfig, |_| vec![("ballast", started.id())]).await?;
        let theirs = match real {
            Some(kubeconfig) => Some(Measured::of(kubeconfig, real_parts).await?),
            None => None,
        };
        Ok(Self { ours, theirs, _started: started, _directory: directory })
    }

    fn each(&self) -> impl Iterator<Item = &Measured> + Clone {
        [Some(&self.ours), self.theirs.as_ref()].into_iter().flatten()
    }

    /// Leaves the real one as it was.
    async fn end(self) -> Result<()> {
        if let Some(theirs) = &self.theirs {
            let namespaces: Api<Namespace> = Api::all(theirs.server.client.clone());
            namespaces.delete(NAMESPACE, &DeleteParams::background()).await?;
        }
        Ok(())
    }
}

/// Requests, how soon watches are told, or both; beside a real server where one is given.
pub async fn measure(ballast: &Path, real: Option<&Path>, requests: bool, watches: bool) -> Result<()> {
    let servers = Servers::start(ballast, real).await?;
    if requests {
        beside(&servers).await?;
    }
    if watches {
        let named = ["drydock", "Kubernetes with etcd"].into_iter().zip(servers.each());
        block_in_place(|| rounds::watches(named))?.print();
    }
    servers.end().await?;
    if requests {
        flat(ballast).await?;
    }
    Ok(())
}

async fn beside(servers: &Servers) -> Result<()> {
    let both = || servers.each();
    let mut table = Table::new(
        &format!("the API over TLS, durable, {CONNECTIONS} connections (median of {ROUNDS})"),
        ["what", "drydock", "Kubernetes with etcd", "times", "goal"],
    );
    type Ask = fn(&Measured, usize) -> Result<Load>;
    let mut rates = |what: &str, goal: &str, ask: Ask| -> Result<()> {
        let loads = by_turns(both(), ask, Load::per_second)?;
        let mut row = [what.to_owned(), String::new(), String::new(), String::new(), goal.to_owned()];
        for (cell, load) in row.iter_mut().skip(1).zip(&loads) {
            *cell = format!("{:.0} /s, p99 {:.1} ms", load.per_second(), load.all_but(0.01));
        }
        if let [ours, theirs] = &loads[..] {
            row[3] = format!("{:.1}", ours.per_second() / theirs.per_second());
        }
        table.row(row);
        Ok(())
    };
    let empty: Vec<Vec<f64>> = both().map(Measured::memory).collect::<Result<_>>()?;
    rates("create a ConfigMap", "5 times", |server, round| {
        server.create(round * MANY / ROUNDS, MANY / ROUNDS)
    })?;
    tokio::time::sleep(BREATH).await;
    let full: Vec<Vec<f64>> = both().map(Measured::memory).collect::<Result<_>>()?;
    rates("get a ConfigMap", "6 times", |server, _| server.get(MANY))?;
    both().try_for_each(Measured::custom)?;
    rates(&format!("list {LISTED} custom resources"), "40 times", |server, _| server.list())?;
    let with = format!("memory with {MANY} ConfigMaps");
    for (what, measured, goal) in [("memory at start", empty, ""), (&with, full, "a sixth")] {
        table.row(weighed(what, &measured, goal));
    }
    table.print();
    Ok(())
}

fn weighed(what: &str, measured: &[Vec<f64>], goal: &str) -> [String; 5] {
    let said = |parts: &Vec<f64>| {
        let words: Vec<String> = parts.iter().map(|part| format!("{part:.0}")).collect();
        if words.is_empty() { "not seen from here".to_owned() } else { format!("{} MB", words.join(" + ")) }
    };
    let sum = |parts: &Vec<f64>| parts.iter().sum::<f64>();
    let times = match measured {
        [ours, theirs] if !theirs.is_empty() => format!("1/{:.1}", sum(theirs) / sum(ours)),
        _ => String::new(),
    };
    let cell = |index: usize| measured.get(index).map(said).unwrap_or_default();
    [what.to_owned(), cell(0), cell(1), times, goal.to_owned()]
}

/// The same with few objects and with many, by turns, and a start on many.
async fn flat(ballast: &Path) -> Result<()> {
    let places = [directory()?, directory()?];
    let mut servers = Vec::new();
    for (size, place) in SIZES.into_iter().zip(&places) {
        let (started, _) = up(ballast, place)?;
        let server = Measured::of(&started.kubeconfig, |_| vec![("ballast", started.id())]).await?;
        server.create(0, size)?;
        servers.push((size, started, server));
    }
    tokio::time::sleep(BREATH).await;
    let mut table = Table::new(
        &format!("the same with more objects (median of {ROUNDS})"),
        ["what", "1000 objects", "100000 objects", "of that", "goal"],
    );
    type Ask = fn(&Measured, usize, usize) -> Result<Load>;
    let get: Ask = |server, size, _| server.get(size);
    let create: Ask = |server, size, round| server.create(size + round * SAMPLE, SAMPLE);
    for (what, ask) in [("get", get), ("create", create)] {
        let measured = by_turns(
            servers.iter(),
            |(size, _, server), round| server.costing(|| ask(server, *size, round)),
            |(load, _)| load.per_second(),
        )?;
        let said = |(load, each): &(Load, f64)| {
            let (rate, late) = (load.per_second(), load.all_but(0.01));
            format!("{rate:.0} /s, p99 {late:.1} ms, {each:.0} µs of a processor")
        };
        let [few, many] = &measured[..] else { continue };
        let share = format!("{:.0} %", many.0.per_second() / few.0.per_second() * 100.0);
        table.row([what.to_owned(), said(few), said(many), share, "the same".into()]);
    }
    let memory = servers.last().map(|(.., many)| many.memory()).transpose()?.iter().flatten().sum::<f64>();
    drop(servers);
    let (started, milliseconds) = up(ballast, &places[1])?;
    let said =
        format!("{:.2} s, {:.0} MB (before: {memory:.0} MB)", milliseconds / 1e3, resident(started.id())?);
    table.row(["start to ready".into(), String::new(), said, String::new(), "under 1 s".into()]);
    drop(started);
    table.print();
    Ok(())
}

/// Measures one after the other, then all of them again, and gives of each the round in the middle by `rate`.
fn by_turns<S: Copy, T>(
    servers: impl Iterator<Item = S> + Clone,
    measure: impl Fn(S, usize) -> Result<T>,
    rate: impl Fn(&T) -> f64,
) -> Result<Vec<T>> {
    let mut measured: Vec<Vec<T>> = servers.clone().map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for (rounds, server) in measured.iter_mut().zip(servers.clone()) {
            rounds.push(measure(server, round)?);
        }
    }
    Ok(measured
        .into_iter()
        .map(|mut rounds| {
            rounds.sort_by(|one, other| rate(one).total_cmp(&rate(other)));
            rounds.swap_remove(ROUNDS / 2)
        })
        .collect())
}
