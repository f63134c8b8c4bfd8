//! What should be done: ordered steps, each with a reason.
//!
//! A plan is data. It can be printed before it is carried out, compared, recorded and replayed. `Display` gives
//! one aligned line per step; the alternate form (`{:#}`) adds what is applied and the status in full. Neither
//! shows a secret.

use std::{fmt, time::Duration};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{KindRef, Object, object::HIDDEN};

/// How long a watch may be behind another before it is begun anew.
const LATE: SignedDuration = SignedDuration::from_secs(2);

/// Ordered steps. They are carried out in order up to the first failure; the status is written even then, and the
/// events that tell of it are said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
}

/// One thing to do, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What to do.
    pub effect: Effect,
    /// Why, in words for the person who reads the plan.
    pub because: String,
}

/// Everything that a plan can ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Server-side apply by force under the operator's field manager. What others add beside these fields is
    /// left alone. Skipped when what we own and what we want are the same set with the same values.
    Apply(Object),
    /// Make a secret value, once. The Secret is made by an `Apply` before; this adds one key to it, unless the
    /// key is there. The value is never shown.
    Mint {
        /// The Secret's name.
        secret: String,
        /// The key in it.
        key: String,
        /// What kind of value.
        what: Material,
    },
    /// Delete, with the uid and resourceVersion that were seen as preconditions.
    Remove {
        /// What.
        target: Target,
        /// By what right.
        right: Removal,
    },
    /// What only the service can do, by an engine. Idempotent, or guarded by a question.
    Act(Action),
    /// The status as it should read: everything in it that is ours. Applied to the status subresource under the
    /// operator's field manager, so that what others put beside it stays. Skipped when it reads so already.
    Status(Value),
    /// Say something that people see with `kubectl describe` and `kubectl get events`.
    Event {
        /// What it tells of.
        occasion: Occasion,
        /// Whether it is news or a warning.
        type_: EventType,
        /// One CamelCase word for programs.
        reason: String,
        /// What was being done: `Reconciling`, `Scaling`.
        action: String,
        /// A sentence for people.
        note: String,
    },
    /// Start again at the latest after this time. Says when, never what.
    LookAgain(Duration),
    /// Have a kind listed anew: what is seen of it is behind what is seen of others, by a watch that is late or died.
    Relist(KindRef),
    /// Take the operator's [finalizer](crate::Operator::FINALIZER), so that the resource can't go before `Release`. It is a metadata patch of the resource
    /// itself with its resourceVersion as precondition: server-side apply would make the operator the owner of
    /// an object that is the user's.
    Hold {
        /// The finalizer: `cache.example.com/finalizer`.
        finalizer: String,
    },
    /// Let the finalizer go. Always the last step.
    Release {
        /// The finalizer.
        finalizer: String,
    },
}

/// What kind of secret value is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Material {
    /// Letters and digits, for people and connection strings.
    Password {
        /// How many characters.
        length: u16,
    },
    /// Random bytes.
    Bytes {
        /// How many.
        length: u16,
    },
}

/// An object as it was seen, to be deleted only if it still is what was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its kind.
    pub kind: KindRef,
    /// Its namespace, unless its kind has none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid as seen.
    pub uid: String,
    /// Its resourceVersion as seen.
    pub resource_version: String,
}

impl Target {
    /// The object, as it stands in the view.
    pub fn of(kind: &KindRef, seen: &Object) -> Self {
        Target {
            kind: kind.clone(),
            namespace: seen.namespace().map(str::to_owned),
            name: seen.name().to_owned(),
            uid: seen.uid().unwrap_or_default().to_owned(),
            resource_version: seen.resource_version().unwrap_or_default().to_owned(),
        }
    }
}

/// By what right an object is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Removal {
    /// It is the resource's own and can be remade.
    Child,
    /// It holds data, and this is why it may go.
    Data(DataReason),
}

/// Why something that holds data may be deleted. There is no other reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataReason {
    /// The resource is being deleted, and its deletion policy says that data goes too.
    DeletionPolicy,
    /// A retention rule that the resource states is over.
    Retention {
        /// Which rule.
        rule: String,
    },
    /// A newer copy was proven to hold everything.
    Superseded {
        /// By what.
        by: String,
    },
}

/// What only the service can do, in its engine's own words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// Who does it: a pod's name, or whatever the engine understands.
    pub subject: String,
    /// What, in one or two words, for logs and plans: `add member`.
    pub name: String,
    /// What, in the engine's own words. Not shown: it may name accounts.
    pub what: Value,
}

/// What an event tells of, and so whether it is said after a step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occasion {
    /// What the steps before it did. Where one of them failed it was not done, and is not said.
    Deed,
    /// What the plan's status says for the first time. It is said whenever that status is written: to the next plan it is
    /// no news any more.
    Turn,
}

/// Whether an event is news or a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventType {
    /// News.
    Normal,
    /// A warning.
    Warning,
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        })
    }
}

impl Plan {
    /// Nothing to do.
    pub fn empty() -> Self {
        Plan::default()
    }

    /// Adds a step.
    pub fn then(&mut self, effect: Effect, because: impl Into<String>) -> &mut Self {
        self.steps.push(Step { effect, because: because.into() });
        self
    }

    /// Adds an `Apply`.
    pub fn apply(&mut self, object: Object, because: impl Into<String>) -> &mut Self {
        self.then(Effect::Apply(object), because)
    }

    /// Adds an `Event` that tells of what the steps before it did.
    pub fn event(
        &mut self,
        type_: EventType,
        reason: impl Into<String>,
        action: impl Into<String>,
        note: impl Into<String>,
        because: impl Into<String>,
    ) -> &mut Self {
        let (reason, action, note) = (reason.into(), action.into(), note.into());
        self.then(Effect::Event { occasion: Occasion::Deed, type_, reason, action, note }, because)
    }

    /// Adds an `Event` that tells of what the status, which comes after it, says for the first time.
    pub fn turn(
        &mut self,
        type_: EventType,
        reason: impl Into<String>,
        action: impl Into<String>,
        note: impl Into<String>,
        because: impl Into<String>,
    ) -> &mut Self {
        let (reason, action, note) = (reason.into(), action.into(), note.into());
        self.then(Effect::Event { occasion: Occasion::Turn, type_, reason, action, note }, because)
    }

    /// Looks again at a kind that has been behind for so long: a watch may be late for a while, and one that stays so is
    /// begun anew.
    pub fn look_anew(&mut self, kind: KindRef, behind: SignedDuration, because: &str) -> &mut Self {
        if behind >= LATE {
            self.then(Effect::Relist(kind), because);
        }
        self.then(Effect::LookAgain(LATE.unsigned_abs()), because)
    }

    /// The soonest of the times at which to look again.
    pub fn look_again(&self) -> Option<Duration> {
        self.steps
            .iter()
            .filter_map(|step| match step.effect {
                Effect::LookAgain(after) => Some(after),
                _ => None,
            })
            .min()
    }

    /// The kinds that are to be listed anew.
    pub fn relists(&self) -> impl Iterator<Item = &KindRef> {
        self.steps.iter().filter_map(|step| match &step.effect {
            Effect::Relist(kind) => Some(kind),
            _ => None,
        })
    }

    /// The status that the plan asks for.
    pub fn status(&self) -> Option<&Value> {
        self.steps.iter().find_map(|step| match &step.effect {
            Effect::Status(status) => Some(status),
            _ => None,
        })
    }
}

impl Effect {
    /// One word for what is done: `apply`, `remove`, `status`. The same for every step of its sort, so that it
    /// can be a metric's label.
    pub fn verb(&self) -> &'static str {
        match self {
            Effect::Apply(_) => "apply",
            Effect::Mint { .. } => "mint",
            Effect::Remove { .. } => "remove",
            Effect::Act(_) => "act",
            Effect::Status(_) => "status",
            Effect::Event { .. } => "event",
            Effect::LookAgain(_) => "look",
            Effect::Relist(_) => "relist",
            Effect::Hold { .. } => "hold",
            Effect::Release { .. } => "release",
        }
    }

    /// Whether it is carried out also after a step that failed, which is when people need it most: the status, and
    /// what tells of it.
    pub fn is_report(&self) -> bool {
        matches!(self, Effect::Status(_) | Effect::Event { occasion: Occasion::Turn, .. })
    }

    fn subject(&self) -> String {
        match self {
            Effect::Apply(object) => object.to_string(),
            Effect::Mint { secret, key, what } => format!("Secret {secret}, key {key}: {what}"),
            Effect::Remove { target, .. } => target.to_string(),
            Effect::Act(action) => format!("{}: {}", action.subject, action.name),
            Effect::Status(status) => summary_of(status),
            Effect::Event { type_, reason, .. } => format!("{type_} {reason}"),
            Effect::LookAgain(after) => format!("again in {after:?}"),
            Effect::Relist(kind) => kind.kind.to_string(),
            Effect::Hold { finalizer } | Effect::Release { finalizer } => finalizer.clone(),
        }
    }
}

/// `Ready=True Progressing=False`, or a word where there are no conditions.
fn summary_of(status: &Value) -> String {
    let text =
        |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str).map(str::to_owned);
    let conditions: Vec<String> = status
        .get("conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|condition| Some(format!("{}={}", text(condition, "type")?, text(condition, "status")?)))
        .collect();
    if conditions.is_empty() { "without conditions".to_owned() } else { conditions.join(" ") }
}

impl Step {
    /// Verb and subject: `apply Deployment default/sample`. Names the step in outcomes, logs and traces.
    pub fn headline(&self) -> String {
        format!("{} {}", self.effect.verb(), self.effect.subject())
    }

    /// What the alternate form shows beneath the line.
    fn details(&self) -> Option<String> {
        match &self.effect {
            Effect::Apply(object) => Some(pretty(object.redacted().value())),
            Effect::Status(status) => Some(pretty(status)),
            Effect::Event { note, .. } => Some(note.clone()),
            _ => None,
        }
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| HIDDEN.to_owned())
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return writeln!(f, "nothing to do");
        }
        let subjects: Vec<String> = self.steps.iter().map(|step| step.effect.subject()).collect();
        let width = subjects.iter().map(|subject| subject.chars().count()).max().unwrap_or(0);
        for (step, subject) in self.steps.iter().zip(&subjects) {
            writeln!(f, "{:<7} {subject:<width$}  {}", step.effect.verb(), step.because)?;
            if f.alternate()
                && let Some(details) = step.details()
            {
                for line in details.lines() {
                    writeln!(f, "          {line}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

impl fmt::Display for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Material::Password { length } => write!(f, "a password of {length} characters"),
            Material::Bytes { length } => write!(f, "{length} random bytes"),
        }
    }
}
