//! An operator whose service is a model: what it asks and what it does are proven too.

use std::{sync::Arc, time::Duration};

use ballast_operator::{
    Action, Answer, Answers, Effect, Failure, ObjectRef, Operator, Plan, Question, Relation, View,
};
use ballast_proving::{Act, Check, Life, Prove, Report, Service};
use ballast_runtime::{About, Engine};
use futures::future::BoxFuture;
use kube::CustomResource;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is wanted of a choir.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "proving.example.com", version = "v1", kind = "Choir", namespaced, status = "ChoirStatus")]
struct ChoirSpec {
    singers: usize,
}

/// What is known of a choir.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct ChoirStatus {
    singers: usize,
}

/// Where choirs sing: it can be asked who is there, and be told to let one more in.
#[derive(Default)]
struct Hall(Mutex<Vec<String>>);

impl Engine for Hall {
    fn ask<'a>(&'a self, _: About<'a>, _: &'a Question) -> BoxFuture<'a, Answer> {
        Box::pin(async { Answer::Said(json!(*self.0.lock())) })
    }

    fn act<'a>(&'a self, _: About<'a>, action: &'a Action) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async {
            self.0.lock().push(action.what.as_str().unwrap_or_default().to_owned());
            Ok(())
        })
    }
}

impl Service for Hall {
    fn fork(&self) -> Arc<dyn Service> {
        Arc::new(Hall(Mutex::new(self.0.lock().clone())))
    }

    fn state(&self) -> Value {
        json!(*self.0.lock())
    }
}

/// Lets singers in, one by one.
struct Choirs {
    /// Counts them by what the status says, instead of asking the hall.
    trusts_the_status: bool,
}

impl Operator for Choirs {
    type Resource = Choir;

    const NAME: &'static str = "choir";
    const FIELD_MANAGER: &'static str = "ballast-choir";

    fn relations(&self) -> Vec<Relation> {
        Vec::new()
    }

    fn claims(&self, _: &Choir) -> Vec<ObjectRef> {
        Vec::new()
    }

    fn questions(&self, view: &View<Choir>) -> Vec<Question> {
        Question::new("singers", view.name(), &"who is there?", Duration::ZERO).into_iter().collect()
    }

    fn plan(&self, view: &View<Choir>, answers: &Answers) -> Plan {
        let mut plan = Plan::empty();
        if view.is_being_deleted() {
            return plan;
        }
        let said: Vec<String> = answers.read("singers").unwrap_or_default();
        let told = view.resource.status.as_ref().map_or(0, |status| status.singers);
        let there = if self.trusts_the_status { told } else { said.len() };
        let wanted = view.resource.spec.singers;
        if there < wanted {
            let (subject, what) = (view.name().to_owned(), json!(format!("singer {}", there + 1)));
            plan.then(Effect::Act(Action { subject, name: "let in".into(), what }), "one is missing");
        }
        let singers = if self.trusts_the_status { (there + 1).min(wanted) } else { there };
        plan.then(Effect::Status(json!({"singers": singers})), "how many there are");
        plan
    }
}

fn prove(trusts_the_status: bool) -> Report {
    let choir = |singers: usize| {
        format!(
            "{{apiVersion: proving.example.com/v1, kind: Choir, metadata: {{name: a}}, spec: {{singers: {singers}}}}}"
        )
    };
    let life = Life::new("a choir's")
        .act("found", Act::apply(choir(2)))
        .act("grow", Act::apply(choir(4)))
        .act("disband", Act::delete(choir(4)));
    Prove::new(move || Choirs { trusts_the_status }).service(Hall::default()).life(life).run()
}

#[test]
fn an_action_that_is_guarded_by_a_question_is_done_once() {
    let report = prove(false);
    report.assert_clean();
    assert!(report.lives[0].action_faults.struck > 0, "{report}");
}

#[test]
fn an_action_that_is_guarded_by_the_status_is_done_twice_or_not_at_all() {
    let report = prove(true);
    assert!(report.checks().contains(&Check::Same), "{report}");
    // How many writes there are depends on what is seen together.
    for (begin, end) in
        [("crashed after write 1 of ", ", ACT let in a"), ("ACT let in a fails before it is done", "")]
    {
        let is_meant = |run: &str| run.starts_with(begin) && run.ends_with(end);
        assert!(report.findings.iter().any(|finding| is_meant(&finding.run)), "{begin}…{end}\n{report}");
    }
}
