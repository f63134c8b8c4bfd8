//! What goes into programs and comes out of them.

use std::os::fd::AsFd;
use std::time::Duration;

use drydock_sandbox::{Attached, Container, ExecConfig, Piece, Pod};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Check, Place, checks, exec, output};

checks![
    exec_runs_in_the_container_with_its_own_streams,
    exec_with_a_terminal_has_one_that_can_be_resized,
    attached_clients_write_and_read,
    who_only_listens_leaves_a_container_its_input,
    what_a_container_does_not_read_holds_up_its_writer_alone,
    much_that_goes_in_comes_out,
    attached_clients_that_read_late_get_everything,
    what_was_written_is_read_after_the_pod_is_gone,
    an_attached_client_that_is_gone_holds_nobody_up,
    a_pod_that_is_gone_before_its_container_is_no_end_of_its_output,
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
    shell.streams.terminal.resize(132, 43).unwrap();
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
        let mut attached = container.attach(true).await.unwrap();
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

async fn who_only_listens_leaves_a_container_its_input(place: &Place) {
    let pod = place.pod("listen").await;
    let mut config = place.container("c", &["cat"]);
    (config.stdin, config.stdin_once) = (true, true);
    let container = pod.start(config).await.unwrap();
    let mut listener = container.attach(false).await.unwrap();
    assert!(listener.stdin.is_none());
    let mut writer = container.attach(true).await.unwrap();
    let mut stdin = writer.stdin.take().expect("nobody has taken it");
    assert!(container.attach(true).await.unwrap().stdin.is_none(), "there is one, and it is taken");
    stdin.write_all(b"it").await.unwrap();
    drop(stdin);
    let both = async { tokio::join!(heard(&mut listener), heard(&mut writer)) };
    let (first, second) = tokio::time::timeout(LONG, both).await.expect("its input has ended");
    assert_eq!((&first.unwrap()[0], &second.unwrap()[0]), (&b"it".to_vec(), &b"it".to_vec()));
    assert_eq!(container.wait().await.unwrap().code, 0);
    pod.stop().await.unwrap();
}

/// Those that hang are done.
const LONG: Duration = Duration::from_secs(20);

/// All that is written from now on, to standard output and to standard error.
async fn heard(attached: &mut Attached) -> std::io::Result<[Vec<u8>; 2]> {
    let mut text = [Vec::new(), Vec::new()];
    while let Some(piece) = attached.next().await? {
        match piece {
            Piece::Out(bytes) => text[0].extend(bytes),
            Piece::Err(bytes) => text[1].extend(bytes),
        }
    }
    Ok(text)
}

/// A container that writes so many bytes, and a word about it, to one who attached before.
async fn writer(place: &Place, pod: &Pod, bytes: usize) -> (Container, Attached) {
    let script = format!("read a; head -c {bytes} /dev/zero | tr '\\0' x; echo done >&2");
    let mut config = place.container("c", &["sh", "-c", &script]);
    config.stdin = true;
    let container = pod.start(config).await.unwrap();
    let mut attached = container.attach(true).await.unwrap();
    attached.stdin.as_mut().unwrap().write_all(b"go\n").await.unwrap();
    (container, attached)
}

/// Waits until that container has written much, and no more.
async fn goes_no_further(place: &Place) {
    let mut before = 0;
    let same = async || {
        let written = place.lines("c").len();
        written > 150_000 && std::mem::replace(&mut before, written) == written
    };
    place.until("it goes no further", same).await;
}

async fn what_a_container_does_not_read_holds_up_its_writer_alone(place: &Place) {
    let pod = place.pod("deaf").await;
    let mut config = place.container("c", &["sleep", "600"]);
    config.stdin = true;
    let container = pod.start(config).await.unwrap();
    let mut stdin = container.attach(true).await.unwrap().stdin.unwrap();
    let pipe = stdin.as_fd().try_clone_to_owned().unwrap();
    let writing = tokio::spawn(async move { stdin.write_all(&[0; 1 << 20]).await });
    place.until("the pipe is full", async || rustix::io::ioctl_fionread(&pipe) == Ok(64 << 10)).await;
    writing.abort();
    let ended = tokio::time::timeout(LONG, writing).await.expect("a thread waits for the container");
    assert!(ended.unwrap_err().is_cancelled());
    pod.stop().await.unwrap();
}

async fn much_that_goes_in_comes_out(place: &Place) {
    const MUCH: usize = 10 << 20;
    let pod = place.pod("cat").await;
    let mut config = place.container("c", &["cat"]);
    (config.stdin, config.stdin_once, config.log) = (true, true, None);
    let container = pod.start(config).await.unwrap();
    let mut attached = container.attach(true).await.unwrap();
    let mut stdin = attached.stdin.take().unwrap();
    let write = async {
        stdin.write_all(&vec![b'x'; MUCH]).await.unwrap();
        drop(stdin);
    };
    let both = async { tokio::join!(heard(&mut attached), write) };
    let (heard, ()) = tokio::time::timeout(LONG, both).await.expect("it goes round");
    let [out, _] = heard.unwrap();
    assert!(out == b"x".repeat(MUCH), "{}", out.len());
    assert_eq!(container.wait().await.unwrap().code, 0);
    pod.stop().await.unwrap();
}

async fn attached_clients_that_read_late_get_everything(place: &Place) {
    const MUCH: usize = 3_000_000;
    let pod = place.pod("late").await;
    let (container, mut late) = writer(place, &pod, MUCH).await;
    goes_no_further(place).await;
    let mut second = container.attach(false).await.unwrap();
    let both = async { tokio::join!(heard(&mut late), heard(&mut second)) };
    let (first, second) = tokio::time::timeout(LONG, both).await.unwrap();
    let [out, err] = first.unwrap();
    assert!(out == b"x".repeat(MUCH) && err == b"done\n", "{}", out.len());
    let [out, err] = second.unwrap();
    assert!(out.len() < MUCH && err == b"done\n", "only from then on");
    assert_eq!(container.wait().await.unwrap().code, 0);
    assert_eq!(place.lines("c").replace('\n', "").len(), MUCH + "done".len());
    pod.stop().await.unwrap();
}

async fn what_was_written_is_read_after_the_pod_is_gone(place: &Place) {
    // More than a socket holds, and no more than an init takes before it waits for somebody.
    const MUCH: usize = 240_000;
    let pod = place.pod("posthumous").await;
    let (container, mut attached) = writer(place, &pod, MUCH).await;
    let ended = tokio::time::timeout(LONG, container.wait()).await.unwrap();
    assert_eq!(ended.unwrap().code, 0);
    pod.stop().await.unwrap();
    let [out, err] = heard(&mut attached).await.unwrap();
    assert!(out == b"x".repeat(MUCH) && err == b"done\n", "{}", out.len());
}

async fn an_attached_client_that_is_gone_holds_nobody_up(place: &Place) {
    let pod = place.pod("left").await;
    let (container, attached) = writer(place, &pod, 3_000_000).await;
    goes_no_further(place).await;
    drop(attached);
    let ended = tokio::time::timeout(LONG, container.wait()).await.expect("it goes on");
    assert_eq!(ended.unwrap().code, 0);
    pod.stop().await.unwrap();
}

async fn a_pod_that_is_gone_before_its_container_is_no_end_of_its_output(place: &Place) {
    let pod = place.pod("cut").await;
    let container = pod.start(place.container("c", &["sh", "-c", "echo x; exec sleep 600"])).await.unwrap();
    let mut attached = container.attach(true).await.unwrap();
    pod.stop().await.unwrap();
    assert_eq!(heard(&mut attached).await.unwrap_err().to_string(), "its output broke off");
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
