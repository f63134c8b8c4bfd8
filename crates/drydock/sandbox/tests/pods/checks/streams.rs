//! What goes into programs and comes out of them.

use drydock_sandbox::{ExecConfig, Piece};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Check, Place, checks, exec, output};

checks![
    exec_runs_in_the_container_with_its_own_streams,
    exec_with_a_terminal_has_one_that_can_be_resized,
    attached_clients_write_and_read,
    logs_go_on_in_a_new_file_when_asked,
];

async fn exec_runs_in_the_container_with_its_own_streams(place: &Place) {
    let pod = place.pod("exec").await;
    let mut config = place.container("c", &["sleep", "600"]);
    config.env = vec![("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())];
    config.cwd = "/tmp".to_owned();
    let container = pod.start(config).await.unwrap();
    let mut config = exec(&["sh", "-c", "echo $A$B; pwd; cat /proc/1/cmdline; echo no >&2; exit 3"]);
    config.env = vec![("B".to_owned(), "3".to_owned())];
    let (code, out, err) = output(&container, config).await;
    assert_eq!((code, out.as_str(), err.as_str()), (3, "13\n/tmp\nsleep\x00600\0", "no\n"));

    let mut cat = container.exec(ExecConfig { stdin: true, ..exec(&["cat"]) }).await.unwrap();
    let mut stdin = cat.streams.stdin.take().unwrap();
    stdin.write_all(b"there and back").await.unwrap();
    drop(stdin);
    let mut text = String::new();
    cat.streams.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "there and back");
    assert_eq!(cat.wait().await.unwrap().code, 0);

    let mut slow = container.exec(exec(&["sleep", "600"])).await.unwrap();
    slow.signal(9).await.unwrap();
    assert_eq!(slow.wait().await.unwrap().code, 137);
    slow.signal(9).await.unwrap();

    // The container's end is the end of what runs beside it.
    let mut beside = container.exec(exec(&["sleep", "600"])).await.unwrap();
    container.signal(9).await.unwrap();
    assert_eq!(beside.wait().await.unwrap().signal, Some(9));
    assert!(container.exec(exec(&["true"])).await.is_err(), "it has ended");
    pod.stop().await.unwrap();
}

async fn exec_with_a_terminal_has_one_that_can_be_resized(place: &Place) {
    let pod = place.pod("terminal").await;
    let container = pod.start(place.container("c", &["sleep", "600"])).await.unwrap();
    let script = "tty; echo $TERM; read line; stty size; exit 4";
    let mut shell =
        container.exec(ExecConfig { tty: true, stdin: true, ..exec(&["sh", "-c", script]) }).await.unwrap();
    shell.resize(132, 43).unwrap();
    shell.streams.stdin.as_mut().unwrap().write_all(b"go\n").await.unwrap();
    let mut text = String::new();
    shell.streams.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.retain(|line| *line != "go");
    assert_eq!(lines, ["/dev/pts/0", "xterm", "43 132"]);
    assert_eq!(shell.wait().await.unwrap().code, 4);
    pod.stop().await.unwrap();
}

async fn attached_clients_write_and_read(place: &Place) {
    let pod = place.pod("attach").await;
    for tty in [false, true] {
        let id = if tty { "tty" } else { "pipe" };
        let mut config = place.container(id, &["sh", "-c", "read a; echo got $a"]);
        (config.stdin, config.tty) = (true, tty);
        let container = pod.start(config).await.unwrap();
        let mut attached = container.attach().await.unwrap();
        attached.stdin.as_mut().unwrap().write_all(b"it\n").await.unwrap();
        let mut text = Vec::new();
        while let Some(piece) = attached.next().await.unwrap() {
            match piece {
                Piece::Out(bytes) | Piece::Err(bytes) => text.extend(bytes),
            }
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("got it"), "{text}");
        assert_eq!(container.wait().await.unwrap().code, 0);
        assert!(place.lines(id).contains("got it"));
    }
    pod.stop().await.unwrap();
}

async fn logs_go_on_in_a_new_file_when_asked(place: &Place) {
    let pod = place.pod("rotate").await;
    let container = pod
        .start(place.container("r", &["sh", "-c", "while true; do echo x; sleep 0.01; done"]))
        .await
        .unwrap();
    place.until("the first line", async || place.log("r").exists() && place.lines("r").contains('x')).await;
    std::fs::rename(place.log("r"), place.log("r.old")).unwrap();
    container.reopen_log().await.unwrap();
    place.until("a line in the new file", async || place.lines("r").contains('x')).await;
    pod.stop().await.unwrap();
}
