//! `kill -9` of the API server under sixteen clients that write, again and again: every write that was acknowledged
//! is there afterwards as it was acknowledged, and one that was under way is there whole or not at all. Of three kills one
//! comes while the log is being compacted, one after it was, and one at any time.
//!
//! A few rounds belong to the tests; `make soak` asks for a hundred with `BALLAST_SOAK`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::dice::{Dice, rounds};
use crate::support::{Cluster, PATIENCE, eventually, said};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;

/// Where nothing is asked for.
const ROUNDS: u32 = 5;
const WRITERS: u64 = 16;
/// How many writes of a round are acknowledged before the kill, at most.
const WRITES: u64 = 400;
/// The longest text of an object, so that it does not take many to have the log compacted.
const LONGEST: u64 = 60_000;

/// An object as its writer was told it is.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    number: u64,
    uid: String,
    version: String,
}

/// What is asked for and not yet answered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Put(u64),
    Delete,
}

/// What a writer knows of one of its objects.
#[derive(Clone, Debug, Default)]
struct Known {
    told: Option<Told>,
    asked: Option<Asked>,
}

/// What a writer knows of all of them, by name.
type Ledger = BTreeMap<String, Known>;

/// An object that is not to be mistaken for another, nor for half of one.
fn object(name: &str, number: u64) -> ConfigMap {
    let text = number.to_string().repeat(usize::try_from(number % LONGEST / 10 + 1).unwrap());
    let data = json!({"first": number.to_string(), "last": number.to_string(), "text": text});
    let metadata = json!({"name": name, "labels": {"number": number.to_string(), "app": "durable"}});
    serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
}

/// What there is, when it is whole.
#[track_caller]
fn found(there: &ConfigMap) -> Told {
    let name = there.name_any();
    let number = there.labels()["number"].parse().unwrap();
    let whole = object(&name, number);
    assert_eq!((&there.data, there.labels()), (&whole.data, whole.labels()), "half of {name}");
    Told { number, uid: there.uid().unwrap(), version: there.resource_version().unwrap() }
}

async fn client(kubeconfig: &Path) -> Api<ConfigMap> {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    Api::default_namespaced(Client::try_from(config).unwrap())
}

/// Creates, replaces and deletes until the server is gone.
async fn write(
    writer: u64,
    objects: Api<ConfigMap>,
    mut ledger: Ledger,
    mut dice: Dice,
    done: Arc<AtomicU64>,
) -> Ledger {
    loop {
        let names: Vec<String> = ledger.keys().cloned().collect();
        let choice = dice.of(10);
        let number = dice.of(u64::MAX >> 33);
        let (name, ask) = match names.get(usize::try_from(dice.of(20)).unwrap()) {
            Some(name) if choice < 6 => (name.clone(), Asked::Put(number)),
            Some(name) if choice < 8 => (name.clone(), Asked::Delete),
            _ => (format!("writer-{writer}-{number}"), Asked::Put(number)),
        };
        let known = ledger.entry(name.clone()).or_default();
        known.asked = Some(ask);
        let answer = match (ask, &known.told) {
            (Asked::Put(number), None) => {
                objects.create(&PostParams::default(), &object(&name, number)).await.map(Some)
            }
            (Asked::Put(number), Some(told)) => {
                let mut replacement = object(&name, number);
                replacement.metadata.resource_version = Some(told.version.clone());
                objects.replace(&name, &PostParams::default(), &replacement).await.map(Some)
            }
            (Asked::Delete, _) => objects.delete(&name, &DeleteParams::default()).await.map(|_| None),
        };
        match answer {
            Ok(Some(there)) => *known = Known { told: Some(found(&there)), asked: None },
            Ok(None) => drop(ledger.remove(&name)),
            Err(kube::Error::Api(refusal)) => panic!("{name} was refused: {refusal:?}"),
            Err(_) => return ledger,
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Holds what there is against what the writers were told, and goes on from it.
#[track_caller]
fn compare(there: &mut BTreeMap<String, Told>, ledgers: &mut [Ledger]) {
    for ledger in ledgers {
        for (name, known) in ledger.iter_mut() {
            let now = there.remove(name);
            let as_told = now == known.told;
            let as_asked = match known.asked {
                None => false,
                Some(Asked::Delete) => now.is_none(),
                Some(Asked::Put(number)) => now.as_ref().is_some_and(|now| {
                    let same = known.told.as_ref().is_none_or(|told| told.uid == now.uid);
                    same && now.number == number
                }),
            };
            assert!(as_told || as_asked, "{name} is {now:?}, and known was {known:?}");
            *known = Known { told: now, asked: None };
        }
        ledger.retain(|_, known| known.told.is_some());
    }
    assert!(there.is_empty(), "nobody wrote {there:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_and_none_is_half_there() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let flags = ["--no-node", "--no-operators", "--data-dir", directory.path().to_str().unwrap()];
    let mut dice = Dice::new();
    let mut ledgers: Vec<Ledger> = vec![Ledger::new(); usize::try_from(WRITERS).unwrap()];
    let log = directory.path().join("store/log");
    // Compacted, it is another file; until then that one is beside it.
    let (number, beside) = (|| std::fs::metadata(&log).unwrap().ino(), log.with_extension("new"));
    for round in 1..=rounds(ROUNDS) {
        let mut cluster = Cluster::with(&flags);
        let done = Arc::new(AtomicU64::new(0));
        let mut writers = Vec::new();
        for (writer, ledger) in (0..).zip(ledgers.drain(..)) {
            let objects = client(&cluster.kubeconfig).await;
            writers.push(tokio::spawn(write(writer, objects, ledger, dice.split(), Arc::clone(&done))));
        }
        let (before_the_kill, deadline) = (WRITERS + dice.of(WRITES), Instant::now() + PATIENCE);
        let first = number();
        let moment = || match round % 3 {
            1 => beside.exists(),
            2 => number() != first,
            _ => true,
        };
        while done.load(Ordering::Relaxed) < before_the_kill || !moment() {
            assert!(Instant::now() < deadline, "the writers do not get on");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        cluster.up.signal("KILL");
        cluster.up.end();
        let compacted = (number() != first, beside.exists());
        let ended = tokio::time::timeout(PATIENCE, join_all(writers)).await.unwrap();
        ledgers = ended.into_iter().map(|ledger| ledger.unwrap()).collect();

        let again = Cluster::with(&flags);
        let objects = client(&again.kubeconfig).await;
        let listed = objects.list(&ListParams::default().labels("app=durable")).await.unwrap();
        let mut there = listed.iter().map(|object| (object.name_any(), found(object))).collect();
        compare(&mut there, &mut ledgers);
        let (acknowledged, kept) = (done.load(Ordering::Relaxed), listed.items.len());
        println!(
            "round {round}: killed after {acknowledged} acknowledged writes, {kept} objects are there; \
             the log was compacted: {}, was being: {}",
            compacted.0, compacted.1
        );
    }
}

#[test]
fn certificates_and_tokens_are_the_same_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--no-node", "--no-operators", "--data-dir", directory.path().to_str().unwrap()];
    let mut first = Cluster::with(&flags);
    let token = eventually("the account is there", || {
        let made = first.kubectl("create token default");
        made.status.success().then(|| made.ok())
    });
    let kubeconfig = |cluster: &Cluster| {
        let text = std::fs::read_to_string(&cluster.kubeconfig).unwrap();
        text.lines().filter(|line| !line.contains("server:")).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = kubeconfig(&first);
    first.up.signal("KILL");
    first.up.end();
    let second = Cluster::with(&flags);
    assert_eq!(kubeconfig(&second), before);
    // Nobody but the token says who it is.
    let stranger = second.directory.path().join("stranger");
    let text = std::fs::read_to_string(&second.kubeconfig).unwrap();
    let own = text.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    std::fs::write(&stranger, text.replace(own, token.trim())).unwrap();
    let words = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    let who = said(second.command().env("KUBECONFIG", &stranger).args(words), "").ok();
    assert_eq!(who, "system:serviceaccount:default:default");
}
