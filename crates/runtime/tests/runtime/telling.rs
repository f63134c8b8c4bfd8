//! What log lines say to the person who has to do something about them.

use ballast_memcached::{Memcached, MemcachedOperator};
use ballast_runtime::NoEngine;
use drydock::Drydock;

use crate::{log, notebook::notebook, support::*};

#[tokio::test]
async fn a_failure_names_its_object_and_its_round_also_where_only_warnings_are_printed() {
    let log = log::warnings();
    let drydock = cluster().await;
    let _running = run(&drydock);
    let mut refused = notebook("mislabelled", 1);
    refused.spec.label = Some("no such label!".into());
    create(&drydock, &refused).await;
    until(&drydock, "mislabelled", "Degraded", "True Failed").await;
    let lines = eventually("it failed twice", async || {
        let lines = log.lines(&["object=default/mislabelled", "failed"]);
        (lines.len() == 2).then_some(lines)
    })
    .await;
    for line in &lines {
        for part in ["controller=\"notebook\"", "reconcile_id=", "error=", "took=\""] {
            assert!(line.contains(part), "no {part} in {line}");
        }
    }
    let [first, second] = lines.try_into().unwrap();
    // It is tried again soon so that the status says it, and then waits for somebody to change something.
    assert!(first.contains("WARN") && first.contains("class=retry"), "{first}");
    assert!(first.contains("ms\" took"), "{first}");
    assert!(second.contains("ERROR") && second.contains("class=terminal"), "{second}");
    assert!(second.contains("m\" took") && !second.contains("ms\" took"), "{second}");
}

#[tokio::test]
async fn a_definition_that_is_not_installed_is_named_once_with_the_way_to_install_it() {
    let log = log::warnings();
    let drydock = Drydock::builder().controllers(false).requests(100_000).start().await.unwrap();
    let running = run_with(&drydock, MemcachedOperator, NoEngine, options());
    let refused = || {
        let is = |entry: &drydock::LogEntry| entry.path.contains("/memcacheds") && entry.status == 404;
        drydock.requests().entries().iter().filter(|entry| is(entry)).count()
    };
    eventually("it was tried several times", async || (refused() > 3).then_some(())).await;
    let lines = log.lines(&["can't watch", "memcacheds.cache.example.com"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let expected = "the definition memcacheds.cache.example.com is not installed; \
                    `ballast crds | kubectl apply --server-side -f -` installs it";
    assert!(lines[0].contains(expected), "{lines:?}");
    assert!(!log.text().contains("Status {"), "{}", log.text());
    install::<Memcached>(&drydock).await;
    eventually("it is ready", async || running.health.is_ready().then_some(())).await;
}

#[tokio::test]
async fn what_may_not_be_watched_is_said_in_the_servers_words() {
    let log = log::warnings();
    let drydock = cluster().await;
    let nobody = drydock::Identity::user("nobody-special", ["system:authenticated"]);
    let _running = run_as(&drydock, nobody, options());
    let line = eventually("it is said", async || {
        log.lines(&["can't watch", "kind=Notebook", "nobody-special"]).pop()
    })
    .await;
    assert!(line.contains("is forbidden: User"), "{line}");
    assert!(!line.contains("Status {") && !line.contains("ApiError"), "{line}");
}
