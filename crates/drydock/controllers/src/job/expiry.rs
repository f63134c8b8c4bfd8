//! Jobs that say how long they stay go when they have been over for that long.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::Clock;
use crate::machinery::cache::{Cache, Kind};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::rest::{Error, Propagation, Rest};
use crate::objects::job::Job;
use crate::objects::resource::Key;

/// How long until a Job goes; nothing when it stays.
fn left(job: &Job, now: Timestamp) -> Option<Duration> {
    let seconds = job.spec.ttl_seconds_after_finished.filter(|_| !job.metadata.deleting())?;
    let since = job.ended()?.last_transition_time?;
    let end = since.checked_add(SignedDuration::from_secs(seconds)).ok()?;
    Some(Duration::try_from(end.duration_since(now)).unwrap_or_default())
}

/// The controller.
pub struct Controller {
    rest: Rest,
    clock: Clock,
    jobs: Arc<Cache<Job>>,
}

impl Controller {
    /// The controller, listening to this informer.
    pub fn new(rest: Rest, clock: Clock, jobs: &mut Informer<Job>, queue: &Arc<Queue<Key>>) -> Self {
        let keys = queue.clone();
        jobs.on_change(move |change| {
            let goes =
                |job: &&Arc<Job>| job.spec.ttl_seconds_after_finished.is_some() && job.ended().is_some();
            if let Some(job) = change.after.filter(goes) {
                keys.add(job.metadata.key());
            }
        });
        Self { rest, clock, jobs: jobs.cache.clone() }
    }

    /// Deletes one Job, if its time has come.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(job) = self.jobs.get(key) else { return Ok(Next::OnChange) };
        match left(&job, (self.clock)()) {
            None => return Ok(Next::OnChange),
            Some(wait) if !wait.is_zero() => return Ok(Next::After(wait)),
            Some(_) => {}
        }
        // What was read may be old: somebody may have given it more time.
        let live: Job = match self.rest.get(Job::resource(), key, None).await {
            Err(error) if error.not_found() => return Ok(Next::OnChange),
            other => other?,
        };
        match left(&live, (self.clock)()) {
            Some(wait) if wait.is_zero() && live.metadata.uid == job.metadata.uid => {
                let uid = &live.metadata.uid;
                let foreground = Some(Propagation::Foreground);
                match self.rest.delete(Job::resource(), key, uid, None, foreground).await {
                    Err(error) if !error.not_found() && !error.conflict() => Err(error),
                    _ => Ok(Next::OnChange),
                }
            }
            Some(wait) if !wait.is_zero() => Ok(Next::After(wait)),
            _ => Ok(Next::OnChange),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(job: &str, expected: Option<u64>) {
        let job: Job = serde_json::from_str(job).unwrap();
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(left(&job, now), expected.map(Duration::from_secs));
    }

    #[test]
    fn only_what_is_over_goes_and_when_it_said() {
        let ended = r#""status":{"conditions":[{"type":"Failed","status":"True","lastTransitionTime":"2026-01-01T00:00:30Z"}]}"#;
        check(&format!(r#"{{"spec":{{"ttlSecondsAfterFinished":100}},{ended}}}"#), Some(70));
        check(&format!(r#"{{"spec":{{"ttlSecondsAfterFinished":10}},{ended}}}"#), Some(0));
        check(&format!(r#"{{{ended}}}"#), None);
        check(r#"{"spec":{"ttlSecondsAfterFinished":10}}"#, None);
    }
}
