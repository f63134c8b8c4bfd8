//! Servers, volumes and agents, as a model: what comes of a pod follows from its command line and from what its volumes
//! hold, as it does with the real agent. That the real one is like this is shown with real servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ballast_mysql::{Ask, LastWords, Manifest, ServerStatus, TableDigest, Told};
use ballast_operator::{Action, Answer, Failure, Question, pod};
use ballast_proving::{Course, Mounted, Service};
use ballast_runtime::{About, Engine, NoEngine};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

/// A backup whose name begins so ends well and has made nothing.
pub const HOLLOW: &str = "hollow";

/// What a server keeps on a volume, or a dump of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Data {
    flavour: String,
    version: String,
    database: String,
    rows: u32,
    /// The backup that it began with.
    from: Option<String>,
    /// The scripts that were run, by their marks. In no dump.
    #[serde(skip)]
    scripts: BTreeSet<String>,
    #[serde(skip)]
    password: Vec<u8>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Volume {
    claim: String,
    data: Option<Data>,
    files: BTreeMap<String, Data>,
    /// How many backups were ever made.
    made: usize,
}

#[derive(Clone, Default)]
struct Known {
    /// By the uid of the claim.
    volumes: BTreeMap<String, Volume>,
    /// The volume that the server of a name was started on.
    servers: BTreeMap<String, String>,
    /// What came of pods, by their uids.
    pods: BTreeMap<String, Course>,
    /// What pods said of the backups that they made, by their names.
    manifests: BTreeMap<String, Manifest>,
}

/// All there is beside the cluster.
#[derive(Default)]
pub struct World(Mutex<Known>);

impl Service for World {
    fn fork(&self) -> Arc<dyn Service> {
        Arc::new(World(Mutex::new(self.0.lock().clone())))
    }

    fn state(&self) -> Value {
        let known = self.0.lock();
        let mut volumes: Vec<String> =
            known.volumes.values().map(|volume| json!(volume).to_string()).collect();
        volumes.sort();
        json!(volumes)
    }

    fn run(&self, pod: &Pod, mounted: &Mounted) -> Course {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut known = self.0.lock();
        if let Some(course) = known.pods.get(&uid) {
            return course.clone();
        }
        let course = match Agent::of(pod, mounted) {
            Some(agent) => agent.run(&mut known).unwrap_or_else(|why| agent.failed(&why)),
            None => Course::Goes,
        };
        known.pods.insert(uid, course.clone());
        course
    }
}

impl Engine for World {
    fn ask<'a>(&'a self, about: About<'a>, question: &'a Question) -> BoxFuture<'a, Answer> {
        let known = self.0.lock();
        let ask: Result<Ask, _> = serde_json::from_value(question.what.clone());
        let answer = match (ask, about.children.get::<Pod>(&question.subject)) {
            (Ok(Ask::Manifest { .. }), _) => json!(known.manifests.get(&question.subject)),
            (Ok(Ask::Server { .. }), Some(Ok(found))) => json!(fares(&known, &found)),
            _ => json!(Told::Refuses),
        };
        Box::pin(async move { Answer::Said(answer) })
    }

    fn act<'a>(&'a self, about: About<'a>, action: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        NoEngine.act(about, action)
    }
}

fn fares(known: &Known, found: &Pod) -> Told {
    let (flavour, tag) = image(found);
    let course = known.pods.get(found.metadata.uid.as_deref().unwrap_or_default());
    let ready = course == Some(&Course::Goes);
    Told::Fares(ServerStatus {
        flavour,
        version: format!("{tag}.9"),
        ready,
        denied: false,
        failed: false,
        message: if ready { String::new() } else { "it does not let anybody in".to_owned() },
        data_bytes: 1,
        free_bytes: 99,
    })
}

/// `mysql`, `8.0`.
fn image(found: &Pod) -> (String, String) {
    let image = pod::image(found, "mysql").and_then(|image| image.rsplit_once(':')).unwrap_or_default();
    (image.0.to_owned(), image.1.to_owned())
}

/// The agent in a pod, and what it was called with.
struct Agent<'p> {
    pod: &'p Pod,
    mounted: &'p Mounted,
    words: Vec<String>,
}

impl<'p> Agent<'p> {
    fn of(pod: &'p Pod, mounted: &'p Mounted) -> Option<Self> {
        let container = pod.spec.as_ref()?.containers.first()?;
        let words = container.command.clone()?;
        (words.get(1).map(String::as_str) == Some("agent")).then_some(Agent { pod, mounted, words })
    }

    fn run(&self, known: &mut Known) -> Result<Course, String> {
        match self.words.get(2).map(String::as_str) {
            Some("run") => self.serve(known),
            Some("dump") => self.dump(known),
            Some("restore") => self.restore(known),
            Some("script") => self.script(known),
            Some("remove-backup") => self.remove(known),
            Some("which") => Ok(self.which()),
            other => Err(format!("unknown: {other:?}")),
        }
    }

    fn failed(&self, why: &str) -> Course {
        if self.words[2] == "run" {
            return Course::Struggles;
        }
        let words = LastWords { reason: "Refused".into(), message: why.to_owned(), ..LastWords::default() };
        Course::Ends { code: 1, message: json!(words).to_string() }
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='))
    }

    fn flavour(&self) -> String {
        self.words.get(3).cloned().unwrap_or_default()
    }

    fn password(&self) -> Vec<u8> {
        self.mounted.files.get("root-password").cloned().unwrap_or_default()
    }

    /// The volume that is mounted at a place.
    fn volume<'k>(&self, known: &'k mut Known, path: &str) -> Result<(String, &'k mut Volume), String> {
        let spec = self.pod.spec.as_ref().ok_or("no spec")?;
        let mounts = spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
        let mount = mounts.into_iter().find(|mount| mount.mount_path == path).ok_or("nothing is mounted")?;
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
        let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref()).ok_or("no claim")?;
        let uid = self.mounted.claims.get(&claim.claim_name).ok_or("the claim is not there")?;
        let volume = known.volumes.entry(uid.clone()).or_default();
        volume.claim.clone_from(&claim.claim_name);
        Ok((uid.clone(), volume))
    }

    /// The data of the server that the agent is to log in to.
    fn server<'k>(&self, known: &'k mut Known) -> Result<&'k mut Data, String> {
        let host = self.option("host").ok_or("no host")?;
        let uid = known.servers.get(host).cloned().ok_or("nobody listens")?;
        let data = known.volumes.get_mut(&uid).and_then(|volume| volume.data.as_mut()).ok_or("no data")?;
        if data.password != self.password() {
            return Err("access denied".to_owned());
        }
        if data.flavour != self.flavour() {
            return Err("another server".to_owned());
        }
        Ok(data)
    }

    fn fresh(&self, database: &str) -> Data {
        Data {
            flavour: self.flavour(),
            version: image(self.pod).1,
            database: database.to_owned(),
            rows: 0,
            from: None,
            scripts: BTreeSet::new(),
            password: self.password(),
        }
    }

    fn serve(&self, known: &mut Known) -> Result<Course, String> {
        let database = self.option("database").unwrap_or_default();
        let upgrade = self.words.iter().any(|word| word == "--upgrade");
        let fresh = self.fresh(database);
        let (uid, volume) = self.volume(known, "/var/lib/mysql")?;
        let data = volume.data.get_or_insert_with(|| fresh.clone());
        if data.flavour != fresh.flavour || data.password != fresh.password {
            return Err("it is another's".to_owned());
        }
        if data.version > fresh.version || (data.version < fresh.version && !upgrade) {
            return Err("it is of another version".to_owned());
        }
        data.version = fresh.version;
        known.servers.insert(format!("mysql-{}", self.pod.labels()["mysql-instance"]), uid);
        Ok(Course::Goes)
    }

    fn dump(&self, known: &mut Known) -> Result<Course, String> {
        if self.pod.name_any().starts_with(HOLLOW) {
            return Ok(Course::Ends { code: 0, message: String::new() });
        }
        let data = self.server(known)?.clone();
        let (_, volume) = self.volume(known, "/backup")?;
        volume.made += 1;
        let file = format!("backup-{}.sql.zst", volume.made);
        let words = LastWords {
            ok: true,
            file: file.clone(),
            bytes: 100,
            content_bytes: 200,
            sha256: sum(&data),
            manifest_sha256: sum(&("manifest", &data)),
            tables: 1,
            rows: data.rows.into(),
            seconds: 1.0,
            flavour: data.flavour.clone(),
            version: format!("{}.9", data.version),
            ..LastWords::default()
        };
        let (database, name) = (data.database.clone(), "t".to_owned());
        let table = TableDigest { database, name, rows: data.rows.into(), digest: sum(&data.rows) };
        volume.files.insert(file, data);
        let manifest = Manifest { sha256: words.manifest_sha256.clone(), tables: vec![table] };
        known.manifests.insert(self.pod.name_any(), manifest);
        Ok(Course::Ends { code: 0, message: json!(words).to_string() })
    }

    fn restore(&self, known: &mut Known) -> Result<Course, String> {
        let from = self.option("from").ok_or("from what?")?.trim_start_matches("/backup/").to_owned();
        let (_, backups) = self.volume(known, "/backup")?;
        let held = backups.files.get(&from).cloned().ok_or("no such file")?;
        if self.option("sha256").is_some_and(|expected| expected != sum(&held)) {
            return Err("it is damaged".to_owned());
        }
        let fresh = self.fresh(&held.database);
        let (_, volume) = self.volume(known, "/var/lib/mysql")?;
        match &volume.data {
            Some(data) if data.from.as_ref() != Some(&from) => return Err("there is other data".to_owned()),
            Some(_) => {}
            None => volume.data = Some(Data { rows: held.rows, from: Some(from), ..fresh }),
        }
        self.ends_well()
    }

    fn script(&self, known: &mut Known) -> Result<Course, String> {
        let mark = self.option("name").unwrap_or_default().to_owned();
        let script = self.mounted.files.get("init.sql").ok_or("no script")?;
        let data = self.server(known)?;
        if data.scripts.insert(mark) && script.starts_with(b"INSERT") {
            data.rows += 1;
        }
        self.ends_well()
    }

    fn remove(&self, known: &mut Known) -> Result<Course, String> {
        let file = self.words.last().cloned().unwrap_or_default();
        self.volume(known, "/backup")?.1.files.remove(&file);
        self.ends_well()
    }

    fn which(&self) -> Course {
        let (flavour, tag) = image(self.pod);
        let words = LastWords { ok: true, flavour, version: format!("{tag}.9"), ..LastWords::default() };
        Course::Ends { code: 0, message: json!(words).to_string() }
    }

    fn ends_well(&self) -> Result<Course, String> {
        let words = LastWords { ok: true, ..LastWords::default() };
        Ok(Course::Ends { code: 0, message: json!(words).to_string() })
    }
}

/// 64 digits that depend on the whole of it.
fn sum(what: &impl Serialize) -> String {
    let mixed = json!(what).to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |mixed, byte| {
        (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{mixed:016x}").repeat(4)
}
