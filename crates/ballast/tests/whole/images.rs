//! `ballast image`, and pods that run from what it imported.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::user::User;
use crate::support::{Cluster, Process, Said, ballast, eventually, said, table};
use drydock_images::{Config, Content, Contents, FileEntry, Reference, write_oci_archive};

/// A home that stays, so that images are made once.
fn home() -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("images-home");
    fs::create_dir_all(&home).unwrap();
    home
}

fn at_home() -> Command {
    let mut command = ballast();
    command.env("HOME", home()).env_remove("XDG_DATA_HOME").env_remove("XDG_CACHE_HOME");
    command
}

fn image(words: &[&str]) -> Said {
    said(at_home().arg("image").args(words), "")
}

/// An archive of an image with one static program in it, which says a word and waits.
fn archive(to: &Path, name: &str) {
    image(&["pull", "busybox"]).ok();
    let images = fs::read_dir(home().join(".local/share/ballast-images/images")).unwrap().flatten();
    let shell = images.map(|image| image.path().join("tree/bin/busybox")).find(|path| path.exists()).unwrap();
    let files = [FileEntry { path: "/bin/sh".into(), mode: 0o755, content: Content::File(shell) }];
    let command = ["/bin/sh", "-c", "echo imported; exec sleep 1000"].map(str::to_owned).to_vec();
    let config = Config { command, user: "1234:1234".to_owned(), ..Config::default() };
    let reference = Reference::parse(name).unwrap();
    write_oci_archive(File::create(to).unwrap(), &Contents::Files(&files), &config, &reference).unwrap();
}

#[test]
fn an_archive_is_imported_listed_run_and_removed_when_nothing_runs_from_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shop.tar");
    archive(&file, "example.com/shop:1.0");
    let said = image(&["import", file.to_str().unwrap(), "--name", "example.com/shop:2.0"]).ok();
    assert!(said.ends_with(" example.com/shop:2.0\n"), "{said}");
    let rows = table(&image(&["ls"]).ok());
    assert_eq!(rows[0], ["IMAGE", "ID", "SIZE", "AGE", "FROM"]);
    let row = rows.iter().find(|row| row[0] == "example.com/shop:2.0").unwrap();
    assert_eq!(row.last().unwrap(), file.to_str().unwrap());

    let kubeconfig = directory.path().join("kubeconfig");
    let mut command = at_home();
    command.args(["up", "--memory", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(&kubeconfig);
    let up = Process::start(command);
    assert!(up.line().starts_with("ready"));
    let mut cluster = Cluster { up, kubeconfig, directory };
    cluster.kubectl("run shop --image=example.com/shop:2.0").ok();
    cluster.kubectl("wait --for=condition=Ready pod/shop --timeout=30s").ok();
    assert_eq!(cluster.kubectl("logs shop").ok(), "imported\n");
    let refused = image(&["rm", "example.com/shop:2.0"]).refused();
    assert!(refused.ends_with(" is in use\n"), "{refused}");
    cluster.kubectl("delete pod shop --now").ok();
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());

    assert_eq!(image(&["rm", "example.com/shop:2.0"]).ok(), "removed example.com/shop:2.0\n");
    assert!(!image(&["ls"]).ok().contains("example.com/shop"));
}

#[test]
fn what_is_no_image_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let whole = directory.path().join("whole.tar");
    archive(&whole, "example.com/damaged:1.0");
    let damaged = directory.path().join("damaged.tar");
    let bytes = fs::read(&whole).unwrap();
    fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    for (words, expected) in [
        (["import", damaged.to_str().unwrap()], "can't import"),
        (["import", "/etc/hostname"], "can't import"),
        (["import", "/nonexistent.tar"], "No such file"),
        (["rm", "nothing-of-that-name"], "there is no image \"nothing-of-that-name\""),
        (["pull", "nosuch"], "not found; there are: "),
        (["pull", "NO:SUCH:NAME"], "invalid reference format"),
    ] {
        let said = image(&words).refused();
        assert!(said.starts_with("error: ") && said.contains(expected), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(!image(&["ls"]).ok().contains("damaged"));
}

/// Databases of Debian's other suites, started with a command of one's own: image, what its id says, what is run, what
/// its client is asked and answers.
const DATABASES: [(&str, &str, &str, &str, &str); 4] = [
    ("postgres:15", "postgres:15.", POSTGRES, VERSION, "15."),
    ("postgres:18", "postgres:18.", POSTGRES, VERSION, "18."),
    ("quay.io/coreos/etcd:v3.4.23", "etcd:3.4.23-bookworm@", ETCD, GET, "3.4.23 here\n"),
    ("quay.io/coreos/etcd:sid", "-sid@", ETCD, GET, "3.5."),
];
const POSTGRES: &str = "initdb -A trust -D /tmp/data && exec postgres -D /tmp/data -k /tmp";
const VERSION: &str = "psql -At -h /tmp -U postgres -c 'SHOW server_version'";
const ETCD: &str = "exec etcd --data-dir=/tmp/data";
const GET: &str = "etcdctl put it here > /dev/null && \
    echo $(etcd --version | sed -n 's/^etcd Version: //p') $(etcdctl get it --print-value-only)";

#[test]
fn databases_of_other_suites_run_and_have_their_clients_and_a_shell() {
    let user = User::is_me();
    user.pull(&DATABASES.map(|(image, ..)| image));
    let mut cluster = user.up(&["--memory", "--no-operators"]);
    for (number, (image, _, command, ..)) in (0..).zip(DATABASES) {
        let name = format!("database-{number}");
        cluster
            .kubectl_with(&["run", &name, "--image", image, "--command", "--", "sh", "-c", command], "")
            .ok();
    }
    for (number, (image, id, _, question, answer)) in (0..).zip(DATABASES) {
        let name = format!("database-{number}");
        let said = eventually(&format!("{image} answers"), || {
            let said = cluster.kubectl_with(&["exec", &name, "--", "sh", "-c", question], "");
            said.status.success().then_some(said.stdout)
        });
        assert!(said.starts_with(answer), "{image}: {said}");
        let runs = cluster.field(&format!("pod/{name}"), ".status.containerStatuses[0].imageID");
        assert!(runs.contains(id), "{image}: {runs}");
    }
    cluster.kubectl("delete pod --all --now").ok();
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}
