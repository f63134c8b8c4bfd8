//! The decision about a CronJob: from it, its Jobs and the time to what is started, what goes and what to say. Pure.

use std::sync::Arc;
use std::time::Duration;

use drydock_cron::{Schedule, zone};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use crate::machinery::recorder::Severity::{self, Normal, Warning};
use crate::objects::job::{CronJob, CronJobStatus, Job};

/// How much later than its time a Job is looked at, so that clocks may differ a little: Kubernetes' number.
const LATER: Duration = Duration::from_millis(100);

/// More missed times than this are worth a warning.
const MANY: i64 = 100;

/// What is known when a CronJob is decided on.
pub struct View<'a> {
    /// The CronJob.
    pub cron_job: &'a CronJob,
    /// The Jobs it manages.
    pub jobs: &'a [Arc<Job>],
    /// The uids of Jobs that it says run and that are not there any more.
    pub missing: &'a [Box<str>],
    /// The time.
    pub now: Timestamp,
}

/// An event to tell.
pub type Told = (Severity, &'static str, String);

/// What is decided.
#[derive(Debug)]
pub struct Plan {
    /// What to tell.
    pub events: Vec<Told>,
    /// Jobs that run and are replaced, by name. They are said to run until they are deleted.
    pub replace: Vec<Box<str>>,
    /// The time for which a Job is to be started.
    pub start: Option<Timestamp>,
    /// Jobs that are over and not kept.
    pub clean_up: Vec<Arc<Job>>,
    /// What to say, before anything is started.
    pub status: CronJobStatus,
}

/// Which times have passed since a Job was last started.
#[derive(Debug, PartialEq, Eq)]
struct Missed {
    /// Since when is counted.
    since: Timestamp,
    /// The last time that has passed.
    last: Option<Timestamp>,
    /// About how many have.
    count: i64,
}

/// Decides.
pub fn plan(view: &View<'_>) -> Plan {
    let cron_job = view.cron_job;
    let mut plan = Plan {
        events: Vec::new(),
        replace: Vec::new(),
        start: None,
        clean_up: Vec::new(),
        status: cron_job.status.clone(),
    };
    look_at_jobs(view, &mut plan);
    if !cron_job.metadata.deleting() {
        schedule(view, &mut plan);
    }
    clean_up(view, &mut plan);
    plan
}

/// Takes in what became of the Jobs.
fn look_at_jobs(view: &View<'_>, plan: &mut Plan) {
    let status = &mut plan.status;
    for job in view.jobs {
        let (uid, name) = (&job.metadata.uid, &job.metadata.name);
        let known = status.active.iter().any(|one| one.uid == *uid);
        let Some(end) = job.ended() else {
            if !known {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                plan.events.push((Warning, "UnexpectedJob", message));
            }
            continue;
        };
        if known {
            status.active.retain(|one| one.uid != *uid);
            let message = format!("Saw completed job: {name}, condition: {}", end.r#type);
            plan.events.push((Normal, "SawCompletedJob", message));
        }
        if &*end.r#type == "Complete" {
            status.last_successful_time = status.last_successful_time.max(job.status.completion_time);
        }
    }
    for uid in view.missing {
        if let Some(at) = status.active.iter().position(|one| one.uid == *uid) {
            let gone = status.active.remove(at);
            plan.events.push((Normal, "MissingJob", format!("Active job went missing: {}", gone.name)));
        }
    }
}

/// Whether a Job is to be started now.
fn schedule(view: &View<'_>, plan: &mut Plan) {
    let (cron_job, spec) = (view.cron_job, &view.cron_job.spec);
    let place = match place(cron_job) {
        Ok(place) => place,
        Err(told) => return plan.events.push(told),
    };
    if spec.suspend {
        return;
    }
    let schedule = match parsed(cron_job) {
        Ok(schedule) => schedule,
        Err(told) => return plan.events.push(told),
    };
    let missed = match missed(cron_job, &plan.status, &schedule, &place, view.now, true) {
        Ok(missed) => missed,
        Err(why) => {
            let message = format!("invalid schedule: {} : {why}", spec.schedule);
            return plan.events.push((Warning, "InvalidSchedule", message));
        }
    };
    let Some(due) = missed.last.filter(|due| *due <= view.now) else { return };
    if missed.count > MANY {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.events.push((Warning, "TooManyMissedTimes", message.into()));
    }
    let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    if deadline.and_then(|wait| due.checked_add(wait).ok()).is_some_and(|end| end < view.now) {
        let shown = due.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let message = format!("Missed scheduled time to start a job: {shown}");
        return plan.events.push((Warning, "MissSchedule", message));
    }
    let name = job_name(cron_job, due);
    let active = &plan.status.active;
    if active.iter().any(|one| *one.name == *name) || cron_job.status.last_schedule_time == Some(due) {
        return;
    }
    match &*spec.concurrency_policy {
        "Forbid" if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            return plan.events.push((Normal, "JobAlreadyActive", message.into()));
        }
        "Replace" => plan.replace = active.iter().map(|one| one.name.clone()).collect(),
        _ => {}
    }
    plan.start = Some(due);
}

fn place(cron_job: &CronJob) -> Result<TimeZone, Told> {
    let name = cron_job.spec.time_zone.as_deref().unwrap_or_default();
    zone(name).map_err(|why| (Warning, "UnknownTimeZone", format!("invalid timeZone: {name:?}: {why}")))
}

fn parsed(cron_job: &CronJob) -> Result<Schedule, Told> {
    let text = &cron_job.spec.schedule;
    Schedule::parse(text)
        .map_err(|why| (Warning, "UnparseableSchedule", format!("unparseable schedule: {text:?} : {why}")))
}

/// The name of the Job for a time: always the same, so that none is started twice.
pub fn job_name(cron_job: &CronJob, due: Timestamp) -> String {
    format!("{}-{}", cron_job.metadata.name, due.as_second().div_euclid(60))
}

/// The time as the annotation of a Job says it.
pub fn scheduled(cron_job: &CronJob, due: Timestamp) -> String {
    let there = due.to_zoned(place(cron_job).unwrap_or(TimeZone::UTC));
    let form = if there.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
    there.strftime(form).to_string()
}

fn missed(
    cron_job: &CronJob,
    status: &CronJobStatus,
    schedule: &Schedule,
    place: &TimeZone,
    now: Timestamp,
    within_deadline: bool,
) -> Result<Missed, &'static str> {
    const NEVER: &str = "time difference between two schedules is less than 1 second";
    let created = cron_job.metadata.creation_timestamp.unwrap_or(now);
    let mut since = status.last_schedule_time.unwrap_or(created);
    if let Some(seconds) = cron_job.spec.starting_deadline_seconds.filter(|_| within_deadline)
        && let Ok(earliest) = now.checked_sub(SignedDuration::from_secs(seconds))
    {
        since = since.max(earliest);
    }
    let next = |after: Timestamp| schedule.next(after, place).ok_or(NEVER);
    let first = next(since)?;
    let second = next(first)?;
    if now < first {
        return Ok(Missed { since, last: None, count: 0 });
    }
    if now < second {
        return Ok(Missed { since, last: Some(first), count: 0 });
    }
    let apart = second.duration_since(first).as_secs();
    if apart < 1 {
        return Err(NEVER);
    }
    let count = now.duration_since(first).as_secs() / apart + 1;
    // Begins shortly before the last of them, instead of going through all.
    let mut at = first.checked_add(SignedDuration::from_secs((count - 2) * apart)).unwrap_or(first);
    let mut last = None;
    while let Some(due) = schedule.next(at, place).filter(|due| *due <= now) {
        (last, at) = (Some(due), due);
    }
    Ok(Missed { since, last, count })
}

/// When to look again, so that the next Job is started in time; nothing where none will be.
pub fn look_again(cron_job: &CronJob, status: &CronJobStatus, now: Timestamp) -> Option<Duration> {
    if cron_job.metadata.deleting() || cron_job.spec.suspend {
        return None;
    }
    let (place, schedule) = (place(cron_job).ok()?, parsed(cron_job).ok()?);
    let from = match missed(cron_job, status, &schedule, &place, now, false) {
        Ok(Missed { last: Some(last), .. }) => last,
        Ok(Missed { since, count: 0, .. }) => since,
        _ => now,
    };
    let next = schedule.next(from, &place)?;
    Some(Duration::try_from(next.duration_since(now)).unwrap_or_default() + LATER)
}

/// The oldest Jobs beyond what is kept.
fn clean_up(view: &View<'_>, plan: &mut Plan) {
    let spec = &view.cron_job.spec;
    let limits =
        [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    for (end, limit) in limits {
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
        let over = view.jobs.iter().filter(|job| job.ended().is_some_and(|one| &*one.r#type == end));
        let mut over: Vec<_> = over.filter(|job| !job.metadata.deleting()).cloned().collect();
        over.sort_by_key(|job| {
            let start = job.status.start_time;
            (start.is_none(), start, job.metadata.name.clone())
        });
        let excess = over.len().saturating_sub(limit);
        plan.clean_up.extend(over.into_iter().take(excess));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATED: &str = "2026-01-01T00:00:30Z";

    fn cron_job(spec: &str, status: &str) -> CronJob {
        let text = format!(
            r#"{{"metadata":{{"name":"c","uid":"c","creationTimestamp":"{CREATED}"}},"spec":{spec},"status":{status}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    /// Jobs as words: name, how it ended, when it began.
    fn jobs(text: &str) -> Vec<Arc<Job>> {
        let read = |word: &str| {
            let mut parts = word.split(':');
            let name = parts.next().unwrap();
            let mut job = serde_json::json!({ "metadata": { "name": name, "uid": name } });
            for part in parts {
                match part {
                    "Complete" | "Failed" => {
                        job["status"]["conditions"] = serde_json::json!([{ "type": part, "status": "True" }]);
                        job["status"]["completionTime"] = "2026-01-01T00:02:00Z".into();
                    }
                    minute => job["status"]["startTime"] = format!("2026-01-01T00:{minute}:00Z").into(),
                }
            }
            Arc::new(serde_json::from_value(job).unwrap())
        };
        text.split_whitespace().map(read).collect()
    }

    #[track_caller]
    fn check(spec: &str, status: &str, running: &str, now: &str, expected: &str) {
        let (cron_job, jobs) = (cron_job(spec, status), jobs(running));
        let now = format!("2026-01-01T{now}Z").parse().unwrap();
        let plan = plan(&View { cron_job: &cron_job, jobs: &jobs, missing: &["gone".into()], now });
        let mut words: Vec<String> = plan.events.iter().map(|(_, reason, _)| (*reason).to_owned()).collect();
        words.extend(plan.replace.iter().map(|name| format!("replace {name}")));
        words.extend(plan.start.map(|due| format!("start {}", job_name(&cron_job, due))));
        words.extend(plan.clean_up.iter().map(|job| format!("remove {}", job.metadata.name)));
        let again = look_again(&cron_job, &plan.status, now);
        words.extend(again.map(|wait| format!("again in {}s", wait.as_secs())));
        assert_eq!(words.join(", "), expected);
    }

    const EACH_MINUTE: &str = r#"{"schedule":"* * * * *"}"#;

    #[test]
    fn a_job_is_started_once_for_its_time() {
        check(EACH_MINUTE, "{}", "", "00:00:40", "again in 20s");
        check(EACH_MINUTE, "{}", "", "00:01:00", "start c-29453761, again in 60s");
        let started = r#"{"lastScheduleTime":"2026-01-01T00:01:00Z"}"#;
        check(EACH_MINUTE, started, "", "00:01:10", "again in 50s");
        check(EACH_MINUTE, started, "", "00:02:00", "start c-29453762, again in 60s");
    }

    #[test]
    fn of_many_missed_times_the_last_is_made_up_for() {
        check(EACH_MINUTE, "{}", "", "00:05:10", "start c-29453765, again in 50s");
        check(EACH_MINUTE, "{}", "", "03:00:10", "TooManyMissedTimes, start c-29453940, again in 50s");
        let odd = r#"{"schedule":"30 6-16/4 * * 1-5"}"#;
        check(odd, "{}", "", "15:00:00", "start c-29454630, again in 55800s");
    }

    #[test]
    fn what_is_too_late_is_left_out() {
        let soon = r#"{"schedule":"0 * * * *","startingDeadlineSeconds":60}"#;
        check(soon, "{}", "", "01:00:50", "start c-29453820, again in 3550s");
        check(soon, "{}", "", "01:01:10", "again in 3530s");
    }

    #[test]
    fn what_still_runs_is_let_be_kept_waiting_for_or_replaced() {
        let running = r#"{"active":[{"name":"one","uid":"one"}],"lastScheduleTime":"2026-01-01T00:01:00Z"}"#;
        let with = |policy: &str| format!(r#"{{"schedule":"* * * * *","concurrencyPolicy":"{policy}"}}"#);
        check(&with("Allow"), running, "one", "00:02:00", "start c-29453762, again in 60s");
        check(&with("Forbid"), running, "one", "00:02:00", "JobAlreadyActive, again in 60s");
        check(&with("Replace"), running, "one", "00:02:00", "replace one, start c-29453762, again in 60s");
    }

    #[test]
    fn what_is_held_starts_nothing_however_long_it_is_due() {
        check(r#"{"schedule":"* * * * *","suspend":true}"#, "{}", "", "03:00:10", "");
        check(
            r#"{"schedule":"* * * * *","suspend":false}"#,
            "{}",
            "",
            "00:01:10",
            "start c-29453761, again in 50s",
        );
    }

    #[test]
    fn the_zone_says_when_it_is_time() {
        // Berlin's two o'clock of a winter's night, and Kolkata's, which is at half of an hour.
        let two = |zone: &str| format!(r#"{{"schedule":"0 2 * * *","timeZone":"{zone}"}}"#);
        check(&two("Europe/Berlin"), "{}", "", "00:59:59", "again in 1s");
        check(&two("Europe/Berlin"), "{}", "", "01:00:00", "start c-29453820, again in 86400s");
        check(&two("Etc/UTC"), "{}", "", "01:00:00", "again in 3600s");
        check(&two("Asia/Kolkata"), "{}", "", "20:30:00", "start c-29454990, again in 86400s");
        check(&two("Asia/Kolkata"), "{}", "", "20:29:00", "again in 60s");
    }

    #[test]
    fn what_became_of_jobs_is_told() {
        let running = r#"{"active":[{"name":"one","uid":"one"},{"name":"g","uid":"gone"}],"lastScheduleTime":"2026-01-01T00:01:00Z"}"#;
        check(EACH_MINUTE, running, "one:Complete", "00:01:10", "SawCompletedJob, MissingJob, again in 50s");
        check(EACH_MINUTE, running, "two", "00:01:10", "UnexpectedJob, MissingJob, again in 50s");
        let (cron_job, jobs) = (cron_job(EACH_MINUTE, running), jobs("one:Complete"));
        let now = "2026-01-01T00:01:10Z".parse().unwrap();
        let plan = plan(&View { cron_job: &cron_job, jobs: &jobs, missing: &[], now });
        assert_eq!(plan.status.last_successful_time, Some("2026-01-01T00:02:00Z".parse().unwrap()));
        assert_eq!(plan.status.active.len(), 1);
    }

    #[test]
    fn only_so_many_are_kept() {
        let spec = r#"{"schedule":"@yearly","successfulJobsHistoryLimit":1,"failedJobsHistoryLimit":0,"suspend":true}"#;
        check(
            spec,
            "{}",
            "a:Complete:03 b:Complete:01 c:Complete:02 d:Failed:01 e:05",
            "00:01:00",
            "UnexpectedJob, remove b, remove c, remove d",
        );
    }

    #[test]
    fn a_schedule_or_zone_that_is_none_starts_nothing() {
        check(r#"{"schedule":"never"}"#, "{}", "", "00:05:00", "UnparseableSchedule");
        check(r#"{"schedule":"* * * * *","timeZone":"No/Where"}"#, "{}", "", "00:05:00", "UnknownTimeZone");
        check(r#"{"schedule":"59 23 31 2 *"}"#, "{}", "", "00:05:00", "InvalidSchedule");
    }

    #[test]
    fn the_time_is_told_in_its_zone() {
        let due = "2026-07-01T06:00:00Z".parse().unwrap();
        let berlin = cron_job(r#"{"schedule":"0 8 * * *","timeZone":"Europe/Berlin"}"#, "{}");
        assert_eq!(scheduled(&berlin, due), "2026-07-01T08:00:00+02:00");
        assert_eq!(scheduled(&cron_job(EACH_MINUTE, "{}"), due), "2026-07-01T06:00:00Z");
    }
}
