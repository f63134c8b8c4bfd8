use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

/// `web` with these fields of its specification, at the revisions `old` and `new`, with pods as words: number,
/// revision, and how it is (`ready`, `pending`, `going`, `failed`, `since=TIME`).
struct Given {
    set: StatefulSet,
    pods: BTreeMap<i32, Arc<Pod>>,
    claims: HashMap<String, Arc<Claim>>,
}

fn given(spec: &str, pods: &str) -> Given {
    let mut spec: serde_json::Value = serde_json::from_str(spec).unwrap();
    for (field, value) in [
        ("podManagementPolicy", "OrderedReady".into()),
        ("updateStrategy", serde_json::json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})),
    ] {
        if spec.get(field).is_none() {
            spec[field] = value;
        }
    }
    let set = serde_json::json!({ "metadata": { "name": "web", "namespace": "n", "uid": "s", "generation": 7 }, "spec": spec });
    let read = |word: &str| {
        let mut parts = word.split(':');
        let (number, revision) = (parts.next().unwrap(), parts.next().unwrap());
        let name = format!("web-{number}");
        let mut pod = serde_json::json!({
            "metadata": { "name": name, "uid": number, "labels": { pod::POD_NAME: name, pod::REVISION: revision } },
            "status": { "phase": "Running" },
        });
        for how in parts {
            match how {
                "going" => pod["metadata"]["deletionTimestamp"] = NOW.into(),
                "pending" => pod["status"]["phase"] = "Pending".into(),
                "failed" => pod["status"]["phase"] = "Failed".into(),
                "unready" => {}
                ready => {
                    let since = ready.strip_prefix("since=").map_or("00-00", |since| since).replace('-', ":");
                    let since = format!("2026-01-01T00:{since}Z");
                    pod["status"]["conditions"] = serde_json::json!([{ "type": "Ready", "status": "True", "lastTransitionTime": since }]);
                }
            }
        }
        (number.parse().unwrap(), Arc::new(serde_json::from_value(pod).unwrap()))
    };
    Given {
        set: serde_json::from_value(set).unwrap(),
        pods: pods.split_whitespace().map(read).collect(),
        claims: HashMap::new(),
    }
}

fn told(given: &Given) -> String {
    let view = View {
        set: &given.set,
        pods: &given.pods,
        claims: &given.claims,
        current: "old",
        update: "new",
        collisions: 0,
        now: NOW.parse().unwrap(),
    };
    let plan = plan(&view);
    let mut words: Vec<String> = plan
        .steps
        .iter()
        .map(|step| match step {
            Step::Claims { number, waits, lacks } => {
                let lack = |lack: &Lack<'_>| match lack {
                    Lack::Missing(template) => format!("{}-{number}", template.metadata.name),
                    Lack::Going(claim) => format!("{claim} when gone"),
                };
                let lacks = lacks.iter().map(lack).collect::<Vec<_>>().join(" and ");
                format!("claim {lacks}{}", if *waits { " for the one that waits" } else { "" })
            }
            Step::Create(number, which) => format!("create {number} {which:?}"),
            Step::Delete(pod) => format!("delete {}", pod.metadata.name),
            Step::Amended(pod) => format!("tell of {}", pod.metadata.name),
            Step::Owners(claim, owners) => format!("own {} by {}", claim.metadata.name, owners.len()),
            Step::Foreign(claim) => format!("foreign {}", claim.metadata.name),
            Step::Amend(pod, _) => format!("amend {}", pod.metadata.name),
        })
        .collect();
    let status = &plan.status;
    words.push(format!(
        "{}/{}/{} old {} new {} at {}",
        status.available_replicas,
        status.ready_replicas,
        status.replicas,
        status.current_replicas,
        status.updated_replicas,
        status.current_revision
    ));
    if let Some(wait) = plan.look_again {
        words.push(format!("again in {}s", wait.as_secs()));
    }
    words.join(", ")
}

#[track_caller]
fn check(spec: &str, pods: &str, expected: &str) {
    assert_eq!(told(&given(spec, pods)), expected);
}

#[test]
fn pods_come_one_after_another() {
    let three = r#"{"replicas":3}"#;
    check(three, "", "create 0 Update, 0/0/0 old 0 new 0 at old");
    check(three, "0:new:pending", "0/0/1 old 0 new 1 at old");
    check(three, "0:new:unready", "0/0/1 old 0 new 1 at old");
    check(three, "0:new:ready", "create 1 Update, 1/1/1 old 0 new 1 at old");
    check(three, "0:new:ready 1:new:ready 2:new:ready", "3/3/3 old 3 new 3 at new");
}

#[test]
fn a_missing_pod_comes_back_before_any_other() {
    check(r#"{"replicas":3}"#, "0:new:ready 2:new:ready", "create 1 Update, 2/2/2 old 0 new 2 at old");
    check(r#"{"replicas":2}"#, "0:new:ready:going 1:new:ready", "2/2/2 old 0 new 1 at old");
    check(r#"{"replicas":2}"#, "0:new:failed 1:new:ready", "delete web-0, 1/1/2 old 0 new 2 at old");
}

#[test]
fn a_parallel_set_waits_for_nobody() {
    let three = r#"{"replicas":3,"podManagementPolicy":"Parallel"}"#;
    check(three, "", "create 0 Update, create 1 Update, create 2 Update, 0/0/0 old 0 new 0 at old");
    check(
        r#"{"replicas":1,"podManagementPolicy":"Parallel"}"#,
        "0:new:pending 1:new:ready 2:new:pending",
        "delete web-2, delete web-1, 1/1/3 old 0 new 3 at old",
    );
}

#[test]
fn the_last_goes_first_and_alone() {
    let one = r#"{"replicas":1}"#;
    check(one, "0:new:ready 1:new:ready 2:new:ready", "delete web-2, 3/3/3 old 0 new 3 at old");
    check(one, "0:new:ready 1:new:ready 2:new:ready:going", "3/3/3 old 0 new 2 at old");
    check(one, "0:new:unready 1:new:ready 2:new:ready", "2/2/3 old 0 new 3 at old");
    check(one, "0:new:ready 1:new:unready 2:new:ready", "delete web-2, 2/2/3 old 0 new 3 at old");
    check(one, "0:new:ready 1:new:unready 2:new:unready", "1/1/3 old 0 new 3 at old");
}

#[test]
fn an_update_goes_from_the_last_to_the_first() {
    let three = r#"{"replicas":3}"#;
    check(three, "0:old:ready 1:old:ready 2:old:ready", "delete web-2, 3/3/3 old 2 new 0 at old");
    check(three, "0:old:ready 1:old:ready 2:new:ready", "delete web-1, 3/3/3 old 1 new 1 at old");
    check(three, "0:old:ready 1:old:ready 2:new:unready", "2/2/3 old 2 new 1 at old");
    check(three, "0:old:ready 1:old:ready", "create 2 Update, 2/2/2 old 2 new 0 at old");
}

#[test]
fn a_partition_keeps_the_first_pods_at_the_current_revision() {
    let two = r#"{"replicas":3,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":2}}}"#;
    check(two, "0:old:ready 1:old:ready 2:old:ready", "delete web-2, 3/3/3 old 2 new 0 at old");
    check(two, "0:old:ready 1:old:ready 2:new:ready", "3/3/3 old 2 new 1 at old");
    check(two, "0:old:ready 2:new:ready", "create 1 Current, 2/2/2 old 1 new 1 at old");
}

#[test]
fn on_delete_updates_what_was_deleted() {
    let by_hand = r#"{"replicas":2,"updateStrategy":{"type":"OnDelete"}}"#;
    check(by_hand, "0:old:ready 1:old:ready", "2/2/2 old 2 new 0 at old");
    check(by_hand, "1:old:ready", "create 0 Update, 1/1/1 old 1 new 0 at old");
    check(by_hand, "0:new:ready 1:new:ready", "2/2/2 old 0 new 2 at old");
}

#[test]
fn a_pod_counts_when_it_has_been_ready_long_enough() {
    let slow = r#"{"replicas":2,"minReadySeconds":10}"#;
    check(slow, "0:new:since=59-55", "0/1/1 old 0 new 1 at old, again in 5s");
    check(slow, "0:new:since=59-40", "create 1 Update, 1/1/1 old 0 new 1 at old");
}

#[test]
fn numbers_begin_where_they_are_told_to() {
    let later = r#"{"replicas":2,"ordinals":{"start":5}}"#;
    check(later, "", "create 5 Update, 0/0/0 old 0 new 0 at old");
    check(later, "5:new:ready 6:new:ready 0:new:ready", "delete web-0, 3/3/3 old 0 new 3 at old");
}

#[test]
fn a_set_that_is_being_deleted_only_tells() {
    let mut given = given(r#"{"replicas":2}"#, "0:new:ready");
    given.set.metadata.deletion_timestamp = Some(NOW.parse().unwrap());
    assert_eq!(told(&given), "1/1/1 old 0 new 1 at old");
}

#[test]
fn claims_come_before_their_pod_and_a_going_one_holds_it_up() {
    let claimed =
        r#"{"replicas":1,"volumeClaimTemplates":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#;
    check(claimed, "", "claim a-0 and b-0, create 0 Update, 0/0/0 old 0 new 0 at old");
    check(claimed, "0:new:pending", "claim a-0 and b-0 for the one that waits, 0/0/1 old 0 new 1 at old");
    let going = r#"{"metadata":{"name":"a-web-0","deletionTimestamp":"2026-01-01T01:00:00Z"}}"#;
    let going: Arc<Claim> = Arc::new(serde_json::from_str(going).unwrap());
    for (pods, expected) in [
        ("", "claim a-web-0 when gone and b-0, 0/0/0 old 0 new 0 at old"),
        ("0:new:pending", "claim a-web-0 when gone and b-0 for the one that waits, 0/0/1 old 0 new 1 at old"),
    ] {
        let mut given = given(claimed, pods);
        given.claims.insert("a-web-0".into(), going.clone());
        assert_eq!(told(&given), expected);
    }
}

#[test]
fn a_claim_of_an_earlier_pod_holds_up_the_next_of_that_name() {
    let mut given = given(
        r#"{"replicas":1,"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"},"volumeClaimTemplates":[{"metadata":{"name":"a"}}]}"#,
        "",
    );
    let stale = r#"{"metadata":{"name":"a-web-0","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"web-0","uid":"x","controller":true}]}}"#;
    given.claims.insert("a-web-0".into(), Arc::new(serde_json::from_str(stale).unwrap()));
    assert_eq!(told(&given), "0/0/0 old 0 new 0 at old");
}

#[test]
fn a_policy_that_reaches_the_claims_of_a_pod_is_told_once() {
    let spec = r#"{"replicas":1,"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"},
        "volumeClaimTemplates":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#;
    let claimed = |how: &str, stored: bool| {
        let mut given = given(spec, how);
        for name in ["a", "b"] {
            let claim = serde_json::json!({ "metadata": { "name": format!("{name}-web-0") } });
            given.claims.insert(format!("{name}-web-0"), Arc::new(serde_json::from_value(claim).unwrap()));
            for pod in given.pods.values_mut().filter(|_| stored) {
                Arc::make_mut(pod).spec.claims.push((name.into(), format!("{name}-web-0").into()));
            }
        }
        told(&given)
    };
    let owned = "own a-web-0 by 1, own b-web-0 by 1";
    assert_eq!(claimed("0:new:ready", true), format!("{owned}, tell of web-0, 1/1/1 old 1 new 1 at new"));
    assert_eq!(claimed("0:new:ready", false), format!("{owned}, amend web-0, 1/1/1 old 1 new 1 at new"));
    assert_eq!(claimed("0:new:pending", true), format!("{owned}, 0/0/1 old 0 new 1 at old"));
}

/// Carries plans out until nothing is left to do, each pod ready as soon as it is there.
fn play(mut given: Given, most: usize) -> usize {
    for round in 0..most {
        let Given { set, pods, claims } = &given;
        let now = NOW.parse().unwrap();
        let view = View { set, pods, claims, current: "old", update: "new", collisions: 0, now };
        let plan = plan(&view);
        if plan.steps.is_empty() {
            return round;
        }
        let mut next = pods.clone();
        for step in &plan.steps {
            match step {
                Step::Create(number, _) => {
                    next.extend(self::given("{}", &format!("{number}:new:ready")).pods);
                }
                Step::Delete(pod) => next.retain(|_, own| !Arc::ptr_eq(own, pod)),
                other => panic!("{other:?}"),
            }
        }
        assert!(next.len().abs_diff(pods.len()) <= 1, "one at a time");
        let status = plan.status;
        given.pods = next;
        given.set.status = status;
    }
    panic!("it does not come to an end");
}

#[test]
fn every_update_comes_to_an_end_one_pod_at_a_time() {
    for (replicas, pods, rounds) in [
        (5, "", 5),
        (3, "0:old:ready 1:old:ready 2:old:ready", 6),
        (0, "0:new:ready 1:new:ready", 2),
        (2, "0:old:ready 1:old:ready 2:old:ready 3:old:ready", 6),
    ] {
        assert_eq!(play(given(&format!(r#"{{"replicas":{replicas}}}"#), pods), 50), rounds);
    }
}
