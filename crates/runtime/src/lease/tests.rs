//! Elections under a paused clock, with a Lease that is kept in memory.

use kube::core::Status;
use parking_lot::Mutex;

use super::*;
use crate::sources::{SystemClock, SystemRandom};

/// A Lease in memory, and whether it can be reached.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<(Option<Lease>, bool)>>);

impl Shelf {
    fn spec(&self) -> LeaseSpec {
        self.0.lock().0.clone().unwrap().spec.unwrap()
    }

    fn cut_off(&self, cut_off: bool) {
        self.0.lock().1 = cut_off;
    }

    fn put(&self, mut lease: Lease, expected: Option<&str>) -> Result<Lease, kube::Error> {
        let mut shelf = self.0.lock();
        let version = shelf.0.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        if shelf.1 || version.as_deref() != expected {
            return Err(refused(if shelf.1 { 503 } else { 409 }));
        }
        let next = version.and_then(|version| version.parse::<u64>().ok()).unwrap_or(0) + 1;
        lease.metadata.resource_version = Some(next.to_string());
        shelf.0 = Some(lease.clone());
        Ok(lease)
    }
}

fn refused(code: u16) -> kube::Error {
    kube::Error::Api(Box::new(Status { code, ..Status::default() }))
}

impl LeaseStore for Shelf {
    fn get(&self) -> BoxFuture<'_, Result<Option<Lease>, kube::Error>> {
        let shelf = self.0.lock();
        let answer = if shelf.1 { Err(refused(503)) } else { Ok(shelf.0.clone()) };
        Box::pin(async { answer })
    }

    fn create(&self, lease: Lease) -> BoxFuture<'_, Result<Lease, kube::Error>> {
        let answer = self.put(lease, None);
        Box::pin(async { answer })
    }

    fn replace(&self, lease: Lease) -> BoxFuture<'_, Result<Lease, kube::Error>> {
        let version = lease.metadata.resource_version.clone();
        let gone = matches!(*self.0.lock(), (None, false));
        let put = || self.put(lease, Some(version.as_deref().unwrap_or_default()));
        let answer = if gone { Err(refused(404)) } else { put() };
        Box::pin(async { answer })
    }
}

fn candidate(shelf: &Shelf, identity: &str) -> Candidate {
    let election =
        LeaderElection { namespace: "ops".into(), name: "ballast".into(), identity: identity.into() };
    Candidate::new(
        election,
        Box::new(shelf.clone()),
        Fence::closed(),
        Health::default(),
        Metrics::default(),
        Arc::new(SystemClock),
        Arc::new(SystemRandom),
    )
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test(start_paused = true)]
async fn the_first_takes_it_and_writes_what_client_go_would() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    assert!(first.fence.check().is_err());
    assert!(first.acquire(&CancellationToken::new()).await);
    assert!(first.fence.check().is_ok());
    let spec = shelf.spec();
    assert_eq!(spec.holder_identity.as_deref(), Some("first"));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    assert_eq!(spec.lease_transitions, Some(0));
    assert_eq!(spec.acquire_time, spec.renew_time);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_keeps_the_time_of_taking() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    let before = shelf.spec();
    assert_eq!(first.attempt().await, Attempt::Held);
    assert_eq!(shelf.spec().acquire_time, before.acquire_time);
    assert_eq!(shelf.spec().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn the_second_waits_until_the_first_has_not_renewed_for_fifteen_seconds() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    let mut second = candidate(&shelf, "second");
    let began = Instant::now();
    assert!(second.acquire(&CancellationToken::new()).await);
    assert!(began.elapsed() >= DURATION, "{:?}", began.elapsed());
    assert!(began.elapsed() <= DURATION + 2 * RETRY, "{:?}", began.elapsed());
    assert_eq!(shelf.spec().lease_transitions, Some(1));
    assert!(first.fence.check().is_err(), "two must never write at once");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_not_taken() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    let stop = CancellationToken::new();
    let keeping = tokio::spawn({
        let stop = stop.clone();
        async move { first.keep(&stop).await }
    });
    let mut second = candidate(&shelf, "second");
    let patience = tokio::time::timeout(seconds(120), second.acquire(&stop)).await;
    assert!(patience.is_err());
    stop.cancel();
    assert!(keeping.await.unwrap(), "stopping is not losing");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_let_go_is_taken_at_once() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    first.release().await;
    assert_eq!(shelf.spec().holder_identity.as_deref(), Some(""));
    assert_eq!(shelf.spec().lease_duration_seconds, Some(1));
    let mut second = candidate(&shelf, "second");
    let began = Instant::now();
    second.acquire(&CancellationToken::new()).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(shelf.spec().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn who_can_not_renew_for_ten_seconds_has_lost_it() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    shelf.cut_off(true);
    let began = Instant::now();
    assert!(!first.keep(&CancellationToken::new()).await);
    assert!(began.elapsed() <= RENEW_DEADLINE + RETRY, "{:?}", began.elapsed());
    assert!(first.fence.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_short_disturbance_is_survived() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    let fence = first.fence.clone();
    shelf.cut_off(true);
    let stop = CancellationToken::new();
    let keeping = tokio::spawn({
        let stop = stop.clone();
        async move { first.keep(&stop).await }
    });
    tokio::time::sleep(seconds(7)).await;
    assert!(fence.check().is_ok());
    shelf.cut_off(false);
    tokio::time::sleep(seconds(60)).await;
    assert!(fence.check().is_ok());
    stop.cancel();
    assert!(keeping.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_fence_closes_by_itself_in_a_process_that_was_asleep() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    tokio::time::advance(RENEW_DEADLINE).await;
    assert!(first.fence.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_took_by_hand_is_lost_at_the_next_renewal() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    {
        let mut stolen = shelf.0.lock();
        let lease = stolen.0.as_mut().unwrap();
        lease.metadata.resource_version = Some("77".into());
        lease.spec.as_mut().unwrap().holder_identity = Some("thief".into());
    }
    let began = Instant::now();
    assert!(!first.keep(&CancellationToken::new()).await);
    assert!(began.elapsed() <= 2 * RETRY, "{:?}", began.elapsed());
}

/// Somebody does something to the lease that the first holds, who goes on holding it. Gives how often it was not
/// renewed without looking.
async fn is_kept_after(by_hand: impl FnOnce(&mut Option<Lease>)) -> String {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    let (fence, metrics) = (first.fence.clone(), first.metrics.clone());
    let stop = CancellationToken::new();
    let keeping = tokio::spawn({
        let stop = stop.clone();
        async move { first.keep(&stop).await }
    });
    by_hand(&mut shelf.0.lock().0);
    // A little after the next renewal, and well after the deadline.
    for passed in [RETRY + seconds(1), 2 * DURATION] {
        tokio::time::sleep(passed).await;
        assert_eq!(shelf.spec().holder_identity.as_deref(), Some("first"));
        assert!(fence.check().is_ok());
    }
    stop.cancel();
    assert!(keeping.await.unwrap());
    let text = metrics.text();
    text.lines().find(|line| line.starts_with("leader_election_slowpath_total")).unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_is_made_anew_at_the_next_renewal() {
    let counted = is_kept_after(|lease| *lease = None).await;
    assert_eq!(counted, r#"leader_election_slowpath_total{name="ballast"} 0"#, "nor does client-go count it");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_only_touches_is_renewed_after_a_look() {
    let touch = |lease: &mut Option<Lease>| {
        lease.as_mut().unwrap().metadata.resource_version = Some("77".into());
    };
    assert_eq!(is_kept_after(touch).await, r#"leader_election_slowpath_total{name="ballast"} 1"#);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_makes_where_it_was_deleted_is_lost_at_the_next_renewal() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    // A server's revisions never come back. The shelf's do, and this one is beyond the next one's.
    assert_eq!(first.attempt().await, Attempt::Held);
    shelf.0.lock().0 = None;
    assert!(candidate(&shelf, "second").acquire(&CancellationToken::new()).await);
    let began = Instant::now();
    assert!(!first.keep(&CancellationToken::new()).await);
    assert!(began.elapsed() <= 2 * RETRY, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_is_asked_to_stop_stops_waiting() {
    let shelf = Shelf::default();
    candidate(&shelf, "first").acquire(&CancellationToken::new()).await;
    let stop = CancellationToken::new();
    stop.cancel();
    assert!(!candidate(&shelf, "second").acquire(&stop).await);
}

#[tokio::test(start_paused = true)]
async fn standing_by_ends_when_the_other_has_not_been_seen_for_the_lease_s_duration() {
    let shelf = Shelf::default();
    let mut first = candidate(&shelf, "first");
    first.acquire(&CancellationToken::new()).await;
    let stop = CancellationToken::new();
    let mut second = candidate(&shelf, "second");
    // The caches of a health that watches nothing are never full: only the line about the lease counts here.
    let health = second.health.clone();
    let says = move || health.ready(true).text.lines().nth(1).unwrap_or_default().to_owned();
    assert_eq!(says(), "[-]lease failed: it has not been read yet");
    let waiting = tokio::spawn({
        let stop = stop.clone();
        async move { second.acquire(&stop).await }
    });
    tokio::time::sleep(seconds(1)).await;
    assert_eq!(says(), "[+]lease ok", "another holds it");
    shelf.cut_off(true);
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(says(), "[+]lease ok", "a short disturbance is no news");
    tokio::time::sleep(seconds(10)).await;
    assert_eq!(says(), "[-]lease failed: the server answered 503");
    shelf.cut_off(false);
    tokio::time::sleep(seconds(20)).await;
    assert_eq!(says(), "[+]lease ok");
    stop.cancel();
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_keeps_the_lease_from_being_taken_is_said_with_what_to_do() {
    let first = candidate(&Shelf::default(), "first");
    let said = |answer: serde_json::Value| {
        first.explain(&kube::Error::Api(Box::new(serde_json::from_value(answer).unwrap())))
    };
    assert_eq!(
        said(serde_json::json!({"code": 403, "message": "leases is forbidden"})),
        "leases is forbidden; allow get, create and update of leases in the namespace ops, or name another with \
         --leader-election-namespace"
    );
    assert_eq!(
        said(serde_json::json!({"code": 404, "message": "no ops", "details": {"kind": "namespaces"}})),
        "no ops; create the namespace ops, or name another with --leader-election-namespace"
    );
    assert_eq!(said(serde_json::json!({"code": 500, "message": "on fire"})), "on fire");
}
