//! A plan for people and for programs.
//!
//! Neither form shows what a Secret holds.

use std::fmt::Write as _;

use ballast_operator::{Change, Difference, Effect, Object, Settled, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use super::admitted::LAST_APPLIED;
use crate::terminal::{Colour, Tone};

/// What would be done about one resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The resource: `Memcached default/memcached-sample`.
    pub resource: String,
    /// What would come of each step, in order. The first is the file itself.
    pub steps: Vec<Shown>,
}

/// A step with what would come of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    /// What would come of it.
    pub outcome: Outcome,
    /// What it is about: `Deployment default/memcached-sample`.
    pub subject: String,
    /// Why it would be done, or why not.
    pub because: String,
    /// The fields that would be different.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "differences_as_json")]
    pub differences: Vec<Difference>,
    /// What would be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
}

/// What would come of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Something new.
    Create,
    /// Something that is there would be different.
    Change,
    /// Something would go.
    Remove,
    /// It is done whenever it is asked for: an action, an event.
    Do,
    /// It is as it should be.
    Keep,
    /// It is about time only.
    Later,
    /// It would not be done.
    Refuse,
}

impl Outcome {
    /// Whether anything would be different afterwards.
    pub fn is_change(self) -> bool {
        matches!(self, Outcome::Create | Outcome::Change | Outcome::Remove | Outcome::Do)
    }

    fn sign(self) -> (&'static str, Tone) {
        match self {
            Outcome::Create => ("+", Tone::Added),
            Outcome::Change => ("~", Tone::Changed),
            Outcome::Remove => ("-", Tone::Removed),
            Outcome::Do => (">", Tone::Added),
            Outcome::Keep => ("=", Tone::Faint),
            Outcome::Later => ("…", Tone::Faint),
            Outcome::Refuse => ("!", Tone::Removed),
        }
    }
}

impl From<&Settled<'_>> for Shown {
    fn from(settled: &Settled<'_>) -> Self {
        let effect = &settled.step.effect;
        let outcome = match (&settled.verdict, effect) {
            (Verdict::Nothing, _) => Outcome::Keep,
            (Verdict::Timing, _) => Outcome::Later,
            (Verdict::Refused { .. }, _) => Outcome::Refuse,
            (Verdict::Change(Change::Create), _) => Outcome::Create,
            (Verdict::Change(Change::Fields(_)), _) => Outcome::Change,
            (Verdict::Done, Effect::Remove { .. }) => Outcome::Remove,
            (Verdict::Done, Effect::Mint { .. }) => Outcome::Create,
            (Verdict::Done, _) => Outcome::Do,
        };
        let differences = match &settled.verdict {
            Verdict::Change(Change::Fields(differences)) => differences.clone(),
            _ => Vec::new(),
        };
        let because = match (&settled.verdict, effect) {
            (Verdict::Refused { why }, _) => why.clone(),
            (_, Effect::Event { note, .. }) => note.clone(),
            _ => settled.step.because.clone(),
        };
        let object = match (&settled.verdict, effect) {
            (Verdict::Change(Change::Create), Effect::Apply(object)) => Some(object.redacted().into_value()),
            _ => None,
        };
        let subject = match effect {
            Effect::Apply(object) => object.to_string(),
            Effect::Remove { target, .. } => target.to_string(),
            _ => settled.step.headline(),
        };
        let secret = matches!(effect, Effect::Apply(object) if object.kind() == "Secret");
        let shown = Shown { outcome, subject, because, differences, object };
        if secret { shown.hidden() } else { shown }
    }
}

impl Shown {
    /// What the file itself would do to the resource.
    pub fn of_file(live: Option<&Object>, wanted: &Object) -> Self {
        let (differences, outcome) = match live {
            None => (Vec::new(), Outcome::Create),
            Some(live) => {
                let all = ballast_operator::differences(Some(&written(live)), Some(&written(wanted)), "");
                let outcome = if all.is_empty() { Outcome::Keep } else { Outcome::Change };
                (all, outcome)
            }
        };
        Shown {
            outcome,
            subject: wanted.to_string(),
            because: "what the file says".to_owned(),
            differences,
            object: None,
        }
    }

    /// The same without the values.
    fn hidden(mut self) -> Self {
        for difference in &mut self.differences {
            if difference.path.starts_with(".data") || difference.path.starts_with(".stringData") {
                difference.is = difference.is.as_ref().map(|_| "(hidden)".into());
                difference.becomes = difference.becomes.as_ref().map(|_| "(hidden, other)".into());
            }
        }
        self
    }
}

/// What people write of an object.
fn written(object: &Object) -> Value {
    let mut value = object.value().clone();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| name == "labels" || name == "annotations");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        metadata.retain(|_, value| value.as_object().is_none_or(|fields| !fields.is_empty()));
    }
    value
}

fn differences_as_json<S: serde::Serializer>(all: &[Difference], serializer: S) -> Result<S::Ok, S::Error> {
    let one = |difference: &Difference| {
        let mut shown = json!({"path": difference.path});
        for (name, value) in [("is", &difference.is), ("becomes", &difference.becomes)] {
            if let Some(value) = value {
                shown[name] = value.clone();
            }
        }
        shown
    };
    serializer.collect_seq(all.iter().map(one))
}

impl Report {
    /// How many steps would change something.
    pub fn changes(&self) -> usize {
        self.steps.iter().filter(|step| step.outcome.is_change()).count()
    }

    /// The report for people.
    pub fn text(&self, colour: Colour) -> String {
        let count = match self.changes() {
            0 => "nothing to do".to_owned(),
            1 => "1 change".to_owned(),
            many => format!("{many} changes"),
        };
        let mut text = colour.paint(Tone::Strong, format_args!("{}: {count}", self.resource)) + "\n";
        let width = self.steps.iter().map(|step| step.subject.chars().count()).max().unwrap_or(0);
        for step in &self.steps {
            let (sign, tone) = step.outcome.sign();
            let line = match step.outcome {
                Outcome::Keep => format!("  {sign} {}", step.subject),
                _ => format!("  {sign} {:width$}  {}", step.subject, step.because),
            };
            let _ = writeln!(text, "{}", colour.paint(tone, line.trim_end()));
            text.push_str(&step.details(colour));
        }
        text
    }
}

impl Shown {
    /// What stands beneath the line: what would be made, or the fields that would be different.
    fn details(&self, colour: Colour) -> String {
        let mut text = String::new();
        if let Some(object) = &self.object {
            lines(&mut text, "+ ", object, Tone::Added, colour);
        }
        for difference in self.differences.iter().filter(|difference| !is_noise(difference)) {
            let (tone, value) = match (&difference.is, &difference.becomes) {
                (None, Some(value)) => (Tone::Added, Some(("+", value))),
                (Some(value), None) => (Tone::Removed, Some(("-", value))),
                _ => (Tone::Changed, None),
            };
            match value {
                Some((sign, value)) if value.is_object() || value.is_array() => {
                    let _ = writeln!(
                        text,
                        "      {}",
                        colour.paint(tone, format_args!("{sign} {}:", difference.path))
                    );
                    lines(&mut text, &format!("{sign}   "), value, tone, colour);
                }
                _ => {
                    let _ = writeln!(text, "      {}", colour.paint(tone, difference));
                }
            }
        }
        text
    }
}

/// A value as YAML, each line behind a sign.
fn lines(text: &mut String, sign: &str, value: &Value, tone: Tone, colour: Colour) {
    let mut value = value.clone();
    forget_times(&mut value);
    let yaml = serde_saphyr::to_string(&value).unwrap_or_else(|_| value.to_string());
    for line in yaml.lines() {
        let _ = writeln!(text, "      {}", colour.paint(tone, format_args!("{sign}{line}")));
    }
}

/// When a condition changed says nothing that the condition does not.
fn is_noise(difference: &Difference) -> bool {
    difference.path.ends_with(".lastTransitionTime")
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("lastTransitionTime");
            fields.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}
