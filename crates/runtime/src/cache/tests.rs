//! What is kept, how it is found, and who is told.

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;

use super::*;

fn policy() -> Policy {
    Policy {
        owners: [("test".to_owned(), "Notebook".to_owned())].into(),
        labels: vec!["notebook".to_owned()],
        applied: true,
        ..Policy::default()
    }
}

/// A cache, and what its listener heard.
fn cache(policy: Policy, namespaces: &[&str]) -> (Cache, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener: Listener = Box::new({
        let heard = Arc::clone(&heard);
        move |_, change: &Change| {
            let what = match (&change.old, &change.new) {
                (None, Some(_)) => "new",
                (Some(_), Some(_)) => "changed",
                _ => "gone",
            };
            heard.lock().push(format!("{} {what}", change.key));
        }
    });
    let namespaces: Vec<Arc<str>> = namespaces.iter().map(|name| Arc::from(*name)).collect();
    (Cache::new(KindRef::of::<ConfigMap>(), policy, &namespaces, vec![listener]), heard)
}

fn shown(name: &str, revision: u64, metadata: Value) -> Shown {
    let key = Key::new(Some("default"), name);
    let mut value = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "resourceVersion": revision.to_string(), "managedFields": [{"manager": "x"}],
        },
        "data": {"key": "value"},
    });
    if let (Some(into), Value::Object(more)) = (value["metadata"].as_object_mut(), metadata) {
        into.extend(more);
    }
    Shown { key, value }
}

fn owned_by(uid: &str, kind: &str) -> Value {
    json!({"ownerReferences": [
        {"apiVersion": "test/v1", "kind": kind, "name": "n", "uid": uid, "controller": true}
    ]})
}

fn kept(cache: &Cache, name: &str) -> Option<Value> {
    let entry = cache.get(&Key::new(Some("default"), name))?;
    Some(entry.object(&cache.kind).unwrap().into_value())
}

#[test]
fn objects_are_found_by_their_controller_and_by_their_label() {
    let (cache, _) = cache(policy(), &[]);
    cache.show(0, shown("a", 1, owned_by("u-1", "Notebook")));
    cache.show(0, shown("b", 2, json!({"labels": {"notebook": "n"}})));
    let names = |found: Vec<(Key, Arc<Entry>)>| -> Vec<String> {
        found.into_iter().map(|(key, _)| key.name.to_string()).collect()
    };
    assert_eq!(names(cache.controlled_by("u-1")), ["a"]);
    assert_eq!(names(cache.labelled("notebook", "n")), ["b"]);
    cache.show(0, shown("a", 3, owned_by("u-2", "Notebook")));
    assert!(cache.controlled_by("u-1").is_empty());
    assert_eq!(names(cache.controlled_by("u-2")), ["a"]);
    cache.lose(0, shown("a", 4, Value::Null));
    assert!(cache.controlled_by("u-2").is_empty());
    assert!(kept(&cache, "a").is_none());
}

#[test]
fn of_a_stranger_only_the_outline_is_kept() {
    let (cache, _) = cache(policy(), &[]);
    cache.show(0, shown("stranger", 1, owned_by("u-9", "Somebody")));
    let outline = kept(&cache, "stranger").unwrap();
    assert!(outline.get("data").is_none());
    assert!(outline["metadata"].get("managedFields").is_none());
    assert_eq!(outline["metadata"]["ownerReferences"][0]["uid"], "u-9");
    cache.show(0, shown("ours", 2, owned_by("u-1", "Notebook")));
    assert_eq!(kept(&cache, "ours").unwrap()["metadata"]["managedFields"][0]["manager"], "x");
}

#[test]
fn of_what_is_only_observed_nothing_is_kept_that_no_one_looks_at() {
    let selectors = [Some("notebook".to_owned())].into();
    let observed = Policy { labels: vec!["notebook".into()], selectors, ..Policy::default() };
    assert_eq!(observed.selector(), Some("notebook"));
    let (cache, heard) = cache(observed, &[]);
    cache.show(0, shown("other", 1, Value::Null));
    cache.show(0, shown("a", 2, json!({"labels": {"notebook": "n"}})));
    assert!(kept(&cache, "other").is_none());
    assert!(kept(&cache, "a").unwrap()["metadata"].get("managedFields").is_none());
    // Losing the label is going away.
    cache.show(0, shown("a", 3, Value::Null));
    assert_eq!(*heard.lock(), ["default/a new", "default/a gone"]);
}

#[test]
fn a_watch_is_narrowed_where_all_who_look_say_the_same() {
    let policy = |selectors: &[Option<&str>]| Policy {
        selectors: selectors.iter().map(|selector| selector.map(str::to_owned)).collect(),
        applied: true,
        ..Policy::default()
    };
    assert_eq!(policy(&[Some("a=b"), Some("a=b")]).selector(), Some("a=b"));
    assert_eq!(policy(&[Some("a=b"), Some("a")]).selector(), None);
    assert_eq!(policy(&[Some("a=b"), None]).selector(), None);
    assert_eq!(Policy { primary: true, ..policy(&[Some("a")]) }.selector(), None);
    let object = |labels: Value| {
        let value =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": labels}});
        Object::new(value).unwrap()
    };
    assert!(policy(&[Some("a=b")]).shows(&object(json!({"a": "b"}))));
    assert!(!policy(&[Some("a=b")]).shows(&object(json!({"a": "c"}))));
    assert!(policy(&[Some("a")]).shows(&object(json!({"a": "c"}))));
    assert!(!policy(&[Some("a")]).shows(&object(json!({"b": "c"}))));
    assert!(policy(&[None]).shows(&object(json!({}))));
}

#[test]
fn of_a_secret_the_keys_are_kept_and_no_value() {
    let (cache, _) = cache(Policy { secret: true, ..policy() }, &[]);
    let mut secret = shown("a", 1, owned_by("u-1", "Notebook"));
    secret.value["data"] = json!({"password": "c2VjcmV0"});
    cache.show(0, secret);
    assert_eq!(kept(&cache, "a").unwrap()["data"], json!({"password": ""}));
}

#[test]
fn a_new_list_replaces_the_old_and_tells_only_what_is_different() {
    let (cache, heard) = cache(Policy { primary: true, ..Policy::default() }, &[]);
    assert!(!cache.synced());
    cache.replace(0, vec![shown("a", 1, Value::Null), shown("b", 2, Value::Null)]);
    assert!(cache.synced());
    heard.lock().clear();
    cache.replace(0, vec![shown("b", 2, Value::Null), shown("c", 5, Value::Null)]);
    assert_eq!(*heard.lock(), ["default/c new", "default/a gone"]);
}

#[test]
fn a_cache_knows_what_it_has_shown() {
    let (cache, _) = cache(policy(), &["default", "other"]);
    assert!(!cache.has_shown(Some("default"), 5));
    cache.show(0, shown("a", 5, Value::Null));
    assert!(cache.has_shown(Some("default"), 5));
    assert!(!cache.has_shown(Some("default"), 6));
    assert!(!cache.has_shown(Some("other"), 5), "every watch is a sequence of its own");
    cache.lose(0, shown("a", 8, Value::Null));
    assert!(cache.has_shown(Some("default"), 8), "what went was shown too");
}

#[test]
fn the_list_of_one_namespace_leaves_the_others_alone() {
    let (cache, _) = cache(Policy { primary: true, ..Policy::default() }, &["default", "other"]);
    cache.replace(0, vec![shown("a", 1, Value::Null)]);
    assert!(!cache.synced());
    cache.replace(1, Vec::new());
    assert!(cache.synced());
    assert!(kept(&cache, "a").is_some());
}
