//! Volumes in every state that a killed agent can leave, and in some that it can't.

use super::*;

fn marker() -> Marker {
    Marker::new(Flavour::Postgres, Version::parse("17.12").unwrap(), None)
}

fn make(data: &Path) -> Result<(), VolumeError> {
    own_directory(data)?;
    fs::write(data.join("PG_VERSION"), "17").unwrap();
    Ok(())
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn open(&self) -> Volume {
        Volume::open(self.0.path()).unwrap()
    }

    /// What is on it, sorted.
    fn names(&self) -> Vec<String> {
        let mut names = self.open().names().unwrap();
        names.sort();
        names
    }
}

#[test]
fn a_volume_is_prepared_and_then_said_to_be_whole() {
    let place = Place::new();
    let volume = place.open();
    assert_eq!(volume.look().unwrap(), Found::Nothing);
    volume.prepare(&marker(), make).unwrap();
    assert_eq!(volume.look().unwrap(), Found::Data(marker()), "prepared, and not yet said so");
    volume.confirm(&marker()).unwrap();
    assert_eq!(volume.look().unwrap(), Found::Data(Marker { whole: true, ..marker() }));
    drop(volume);
    assert_eq!(place.names(), [MARKER, DATA]);
}

#[test]
fn what_was_half_made_is_thrown_away() {
    let place = Place::new();
    let volume = place.open();
    // As a kill leaves it: nothing clears up.
    volume.write(&marker()).unwrap();
    fs::create_dir_all(place.0.path().join(".preparing-dead/data/base")).unwrap();
    fs::write(place.0.path().join(".preparing-marker"), "{").unwrap();
    assert_eq!(volume.look().unwrap(), Found::Nothing);
    let failed = volume.prepare(&marker(), |data| {
        fs::create_dir_all(data.join("base")).unwrap();
        Err(VolumeError::InUse(data.to_owned()))
    });
    assert!(failed.is_err());
    drop(volume);
    assert_eq!(place.names(), [MARKER], "a failure leaves nothing either");
    place.open().prepare(&marker(), make).unwrap();
    assert_eq!(place.names(), [MARKER, DATA]);
    // Killed a moment after it was finished.
    fs::create_dir(place.0.path().join(".preparing-done")).unwrap();
    place.open().confirm(&marker()).unwrap();
    assert_eq!(place.names(), [MARKER, DATA]);
}

#[test]
fn data_that_was_there_is_never_made_anew_over_its_loss() {
    let place = Place::new();
    let volume = place.open();
    volume.prepare(&marker(), make).unwrap();
    volume.confirm(&marker()).unwrap();
    fs::remove_dir_all(volume.data()).unwrap();
    let error = volume.look().unwrap_err().to_string();
    assert!(error.contains("held the data of PostgreSQL 17.12, and "), "{error}");
    assert!(error.ends_with("data/PG_VERSION\" is gone: restore it, or give an empty volume"), "{error}");
}

#[test]
fn data_that_is_not_whole_is_in_the_way_unless_there_is_none() {
    let place = Place::new();
    let volume = place.open();
    volume.write(&marker()).unwrap();
    own_directory(&volume.data()).unwrap();
    volume.prepare(&marker(), make).unwrap();
    fs::remove_file(volume.data().join("PG_VERSION")).unwrap();
    fs::write(volume.data().join("something"), "").unwrap();
    assert!(volume.prepare(&marker(), make).unwrap_err().to_string().contains("is not made anew over"));
    assert!(volume.data().join("something").exists());
}

#[test]
fn what_somebody_else_put_there_is_left_alone() {
    for (name, foreign) in [
        ("ibdata1", true),
        ("data", true),
        ("lost+found", false),
        (".snapshot", false),
        (".preparing-x", false),
    ] {
        let place = Place::new();
        fs::create_dir(place.0.path().join(name)).unwrap();
        let looked = place.open().look();
        assert_eq!(looked.is_err(), foreign, "{name}: {looked:?}");
    }
}

#[test]
fn a_marker_of_a_later_version_is_refused() {
    let place = Place::new();
    for text in [
        r#"{"format":2,"flavour":"postgres","version":"17.12","whole":true}"#,
        r#"{"format":1,"flavour":"oracle","version":"17.12","whole":true}"#,
        r#"{"format":1,"flavour":"postgres","version":"17.12","whole":true,"encrypted":true}"#,
        "",
    ] {
        fs::write(place.0.path().join(MARKER), text).unwrap();
        assert!(matches!(place.open().look(), Err(VolumeError::Marker(_))), "{text}");
    }
}

#[test]
fn a_volume_that_is_none_or_not_ours_is_refused() {
    let place = Place::new();
    assert!(matches!(Volume::open(&place.0.path().join("nothing")), Err(VolumeError::Disk { .. })));
    let _held = place.open();
    let began = Instant::now();
    assert!(matches!(Volume::open(place.0.path()), Err(VolumeError::InUse(_))));
    assert!(began.elapsed() >= HANDOVER, "who ended a moment ago is waited for");
}
