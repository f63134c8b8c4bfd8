//! Operators that are broken on purpose, one classic mistake each, are caught, and by the check that is meant to.

#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]

mod gadget;

use ballast_proving::{Act, Check, Life, Prove, Report, Sample, State};
use k8s_openapi::api::apps::v1::Deployment;

use gadget::{Gadget, Gadgets, Mistake};

const GADGET: &str = "{apiVersion: proving.example.com/v1, kind: Gadget, metadata: {name: sample}}";
const DEPLOYMENT: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: sample}}";

fn sample(extra: bool) -> String {
    format!(
        "{{apiVersion: proving.example.com/v1, kind: Gadget, metadata: {{name: sample}}, \
         spec: {{size: 2, extra: {extra}}}}}"
    )
}

fn life() -> Life {
    Life::new("a gadget's")
        .act("create", Act::apply(sample(true)))
        .act("switch off the extra", Act::apply(sample(false)))
        .act("delete a child", Act::delete(DEPLOYMENT))
        .act("delete", Act::delete(GADGET))
}

fn ready_is_evident(state: &State) -> Result<(), String> {
    for gadget in state.list::<Gadget>().into_iter().filter(Gadget::is_ready) {
        let deployment: Option<Deployment> = state.get(Some("default"), "sample");
        let available = deployment.and_then(|deployment| deployment.status?.available_replicas).unwrap_or(0);
        if available < gadget.spec.size {
            return Err(format!("Ready with {available} of {}", gadget.spec.size));
        }
    }
    Ok(())
}

fn prove(mistake: Option<Mistake>, sample: Sample) -> Report {
    Prove::new(move || Gadgets::new(mistake))
        .life(life())
        .holds("Ready is evident", ready_is_evident)
        .sample(sample)
        .run()
}

/// The mistake is found by that check.
fn check(mistake: Mistake, check: Check) {
    let report =
        prove(Some(mistake), Sample { crashes: 16, write_faults: 20, watch_faults: 0, action_faults: 0 });
    assert!(report.checks().contains(&check), "{mistake:?} was not caught by {check:?}\n{report}");
    println!("{mistake:?}\n{report}");
}

#[test]
fn the_sound_operator_passes() {
    prove(None, Sample::default()).assert_clean();
}

#[test]
fn a_name_that_only_memory_knows_makes_a_duplicate_in_the_next_process() {
    check(Mistake::NameInMemory, Check::Effects);
}

#[test]
fn ready_without_evidence_is_caught_at_the_write_that_says_it() {
    check(Mistake::ReadyTooSoon, Check::Holds);
}

#[test]
fn a_child_without_an_owner_is_an_orphan() {
    check(Mistake::NoOwner, Check::Orphans);
}

#[test]
fn a_plan_that_counts_its_rounds_is_not_repeatable() {
    check(Mistake::CountsRounds, Check::Repeatable);
}

#[test]
fn a_stage_in_memory_is_lost_in_a_crash() {
    check(Mistake::StageInMemory, Check::Same);
}

#[test]
fn what_reacts_to_the_change_and_not_to_the_state_misses_it_in_a_crash() {
    check(Mistake::EdgeTriggered, Check::Same);
}

#[test]
fn a_finalizer_that_is_never_released_keeps_the_resource() {
    check(Mistake::NeverReleases, Check::Gone);
}

#[test]
fn two_values_that_take_turns_have_effects_for_ever() {
    check(Mistake::Flips, Check::Effects);
}

#[test]
fn a_child_that_was_once_applied_is_applied_again_when_it_is_lost() {
    check(Mistake::AppliesOnce, Check::Effects);
}

#[test]
fn data_is_not_deleted_because_something_else_is_absent() {
    check(Mistake::DataOnAbsence, Check::Data);
}

#[test]
fn giving_up_after_a_conflict_leaves_another_state() {
    check(Mistake::GivesUp, Check::Same);
}

#[test]
fn a_status_that_tells_the_time_never_comes_to_rest() {
    check(Mistake::ClockInStatus, Check::Rest);
}
