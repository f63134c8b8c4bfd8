//! `ballast agent` in pods, with real PostgreSQL, MariaDB and MySQL, by the real kubectl.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::user::{THIS, User};
use crate::support::{Cluster, Said, eventually, program};

const SECRET: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: credentials}
stringData: {root: "it's \\ the \"root\"\n of all", user: "o'x %s"}
"#;

/// A server, and how its client is told what to do.
struct Server {
    name: &'static str,
    image: &'static str,
    says: &'static str,
    process: &'static str,
    /// A statement as the user of the database, through the network.
    client: &'static str,
    /// The same without a password.
    stranger: &'static str,
}

const SERVERS: [Server; 3] = [
    Server {
        name: "postgres",
        image: "postgres:17",
        says: "PostgreSQL 17.",
        process: "postgres",
        client: r#"PGPASSWORD="$(cat /credentials/user)" psql -qAt -h 127.0.0.1 -U "the 'owner'" -d 'a "b" `c`' -c "$0""#,
        stranger: "psql -w -h 127.0.0.1 -U postgres -c 'SELECT 1'",
    },
    Server {
        name: "mariadb",
        image: "mariadb:11.8",
        says: "MariaDB 11.8.",
        process: "mariadbd",
        client: r#"MYSQL_PWD="$(cat /credentials/user)" mariadb -N -h 127.0.0.1 -u "the 'owner'" 'a "b" `c`' -e "$0""#,
        stranger: "mariadb -h 127.0.0.1 -u root -e 'SELECT 1'",
    },
    Server {
        name: "mysql",
        image: "mysql:9",
        says: "MySQL 9.",
        process: "mysqld",
        client: r#"MYSQL_PWD="$(cat /credentials/user)" mysql -N -h 127.0.0.1 -u "the 'owner'" 'a "b" `c`' -e "$0""#,
        stranger: "mysql -h 127.0.0.1 -u root -e 'SELECT 1'",
    },
];

impl Server {
    /// A pod that runs it on a directory of this machine.
    fn pod(&self, name: &str, volume: &Path) -> String {
        let Server { name: server, image, .. } = self;
        let volume = volume.display();
        format!(
            r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  securityContext: {{runAsUser: 999, runAsGroup: 999}}
  initContainers:
  - {{name: agent, image: "{THIS}", args: [agent, install, /ballast], volumeMounts: [{{name: ballast, mountPath: /ballast}}]}}
  containers:
  - name: server
    image: {image}
    command: [/ballast/ballast, agent, run, {server}, --volume, /volume, --superuser-password-file, /credentials/root,
      --database, "a \"b\" `c`", --user, "the 'owner'", --user-password-file, /credentials/user]
    volumeMounts:
    - {{name: volume, mountPath: /volume}}
    - {{name: ballast, mountPath: /ballast}}
    - {{name: credentials, mountPath: /credentials}}
  volumes:
  - {{name: volume, hostPath: {{path: "{volume}", type: Directory}}}}
  - {{name: ballast, emptyDir: {{}}}}
  - {{name: credentials, secret: {{secretName: credentials}}}}
"#
        )
    }

    fn shell(&self, cluster: &Cluster, script: &str, argument: &str) -> Said {
        cluster.kubectl_with(&["exec", self.name, "-c", "server", "--", "sh", "-c", script, argument], "")
    }

    /// What a statement answers, once the server does.
    fn answers(&self, cluster: &Cluster, statement: &str) -> String {
        eventually(&format!("{} answers {statement:?}", self.name), || {
            let answer = self.shell(cluster, self.client, statement);
            answer.status.success().then_some(answer.stdout)
        })
    }

    fn walk(&self, cluster: &Cluster, volumes: &Path) {
        let volume = volumes.join(self.name);
        fs::create_dir(&volume).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o777)).unwrap();
        cluster.apply(&self.pod(self.name, &volume)).ok();
        let pod = format!("pod/{}", self.name);
        cluster.kubectl(&format!("wait --for=condition=Ready {pod} --timeout=60s")).ok();
        // What a release puts there needs nothing of the image that it runs in; a build for tests does, and says so.
        let put = cluster.kubectl(&format!("logs {pod} -c agent")).ok();
        let said = put.contains("this build needs libraries that other images may lack");
        assert_eq!(said, has_loader(&program()), "{put}");
        self.answers(cluster, "CREATE TABLE kept (word VARCHAR(20))");
        self.answers(cluster, "INSERT INTO kept VALUES ('here')");
        let stranger = self.shell(cluster, self.stranger, "");
        assert!(!stranger.status.success(), "without a password: {stranger}");

        // The agent is the first process: what others leave is reaped.
        let orphan = "for i in 1 2 3; do sh -c 'sleep 0.05 &'; done";
        self.shell(cluster, orphan, "").ok();
        eventually("nothing is left unreaped", || {
            let states = self.shell(cluster, "cat /proc/[0-9]*/stat", "").stdout;
            (!states.contains(") Z ") && !states.contains("(sleep)")).then_some(())
        });
        let environment = "tr '\\0' '\\n' < /proc/1/environ; cat /proc/[0-9]*/cmdline";
        let seen = self.shell(cluster, environment, "").ok();
        assert!(!seen.contains("the \"root\"") && !seen.contains("o'x"), "{seen}");

        // Without a word: the agent says how its server ended, and the next finds the data.
        self.shell(
            cluster,
            &format!("kill -9 $(pidof {} | tr ' ' '\\n' | sort -n | head -1)", self.process),
            "",
        );
        cluster.becomes(&pod, ".status.containerStatuses[0].restartCount", "1");
        let last = ".status.containerStatuses[0].lastState.terminated";
        assert_eq!(cluster.field(&pod, &format!("{last}.exitCode")), "137");
        let message = cluster.field(&pod, &format!("{last}.message"));
        assert!(message.starts_with(self.says) && message.contains(" was ended by SIGKILL"), "{message}");
        assert_eq!(self.answers(cluster, "SELECT word FROM kept"), "here\n");

        // Asked to end it does so in order, well within its time.
        cluster.kubectl(&format!("delete {pod} --grace-period=25 --timeout=20s")).ok();
    }
}

/// Whether the kernel has a program loaded by another, which brings it its libraries.
fn has_loader(program: &Path) -> bool {
    const LOADER: usize = 3;
    let bytes = fs::read(program).unwrap();
    let number = |at: usize, size: usize| {
        bytes[at..at + size].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    assert_eq!(bytes[..6], *b"\x7fELF\x02\x01", "an executable of 64 bits, the lowest first");
    let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|index| number(headers + index * size, 4) == LOADER)
}

#[test]
fn servers_are_prepared_run_and_kept_apart() {
    let user = User::is_me();
    user.pull_this();
    SERVERS.iter().for_each(|server| user.pull(&[server.image]));
    let volumes = user.directory();
    fs::set_permissions(volumes.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut cluster = user.up(&["--memory", "--no-operators"]);
    cluster.apply(SECRET).ok();
    std::thread::scope(|scope| {
        for server in &SERVERS {
            let (cluster, volumes) = (&cluster, volumes.path());
            scope.spawn(move || server.walk(cluster, volumes));
        }
    });

    // Each on the volume of another.
    for (held, server) in [(0, 1), (1, 2), (2, 1)].map(|(held, runs)| (&SERVERS[held], &SERVERS[runs])) {
        let name = format!("{}-on-{}", server.name, held.name);
        cluster.apply(&server.pod(&name, &volumes.path().join(held.name))).ok();
        let path = ".status.containerStatuses[0].lastState.terminated.message";
        let message = eventually("it is refused", || {
            Some(cluster.field(&format!("pod/{name}"), path)).filter(|message| !message.is_empty())
        });
        assert!(message.contains(&format!("the volume holds the data of {}", held.says)), "{message}");
        assert!(message.contains(&format!(", which {}", server.says)), "{message}");
    }
    cluster.up.signal("TERM");
    assert_eq!(cluster.up.end().0, 0, "{}", cluster.up.complaints());
}
