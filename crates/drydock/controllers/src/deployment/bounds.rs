//! The numbers of a roll-out: how many pods more, how many fewer, and who gets which share.

use crate::objects::workload::{Deployment, IntOrPercent};

const NOTHING: IntOrPercent = IntOrPercent::Int(0);

/// Whether pods are replaced a few at a time.
pub fn rolling(deployment: &Deployment) -> bool {
    &*deployment.spec.strategy.r#type != "Recreate"
}

/// Surge is rounded up and unavailability down; where both come to nothing, one pod may be unavailable,
/// since otherwise nothing could ever move.
fn fenceposts(deployment: &Deployment) -> (i32, i32) {
    let (bounds, wanted) = (&deployment.spec.strategy.rolling_update, deployment.spec.replicas);
    let surge = bounds.max_surge.as_ref().unwrap_or(&NOTHING).of(wanted, true);
    let unavailable = bounds.max_unavailable.as_ref().unwrap_or(&NOTHING).of(wanted, false);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// How many pods there may be beyond the wanted number.
pub fn max_surge(deployment: &Deployment) -> i32 {
    if rolling(deployment) { fenceposts(deployment).0 } else { 0 }
}

/// How many pods may be missing.
pub fn max_unavailable(deployment: &Deployment) -> i32 {
    if !rolling(deployment) || deployment.spec.replicas == 0 {
        return 0;
    }
    fenceposts(deployment).1.min(deployment.spec.replicas)
}

/// The size of the new ReplicaSet, given its size and that of all together.
pub fn new_size(deployment: &Deployment, current: i32, all: i32) -> i32 {
    let wanted = deployment.spec.replicas;
    if !rolling(deployment) {
        return wanted;
    }
    let room = wanted + max_surge(deployment) - all;
    if room <= 0 { current } else { current + room.min(wanted - current) }
}

/// The share a ReplicaSet of `size` has in adding `to_add` pods, `added` of which are given out already.
/// `before` is how many pods there could be before the Deployment was scaled.
pub fn share(deployment: &Deployment, size: i32, before: Option<i32>, to_add: i32, added: i32) -> i32 {
    if size == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let fraction = fraction(deployment, size, before);
    let left = to_add - added;
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}

fn fraction(deployment: &Deployment, size: i32, before: Option<i32>) -> i32 {
    if deployment.spec.replicas == 0 {
        return -size;
    }
    let before = before.filter(|before| *before != 0).unwrap_or(deployment.status.replicas);
    if before == 0 {
        return 0;
    }
    let after = i64::from(deployment.spec.replicas + max_surge(deployment));
    let (scaled, before) = (i64::from(size) * after, i64::from(before));
    // Rounded to the nearest, halves away from zero; all of it is positive.
    let grown = (2 * scaled + before) / (2 * before);
    i32::try_from(grown).unwrap_or(i32::MAX) - size
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(replicas: i32, surge: &str, unavailable: &str) -> Deployment {
        let bound = |text: &str| text.parse().map_or(IntOrPercent::Percent(text.into()), IntOrPercent::Int);
        let mut deployment = Deployment::default();
        deployment.spec.replicas = replicas;
        deployment.spec.strategy.r#type = "RollingUpdate".into();
        deployment.spec.strategy.rolling_update.max_surge = Some(bound(surge));
        deployment.spec.strategy.rolling_update.max_unavailable = Some(bound(unavailable));
        deployment
    }

    #[track_caller]
    fn check(replicas: i32, surge: &str, unavailable: &str, expected: (i32, i32)) {
        let deployment = deployment(replicas, surge, unavailable);
        assert_eq!((max_surge(&deployment), max_unavailable(&deployment)), expected);
    }

    #[test]
    fn surge_rounds_up_and_unavailability_down() {
        check(10, "25%", "25%", (3, 2));
        check(3, "25%", "25%", (1, 0));
        check(1, "25%", "25%", (1, 0));
        check(4, "0", "10%", (0, 1));
        check(2, "0%", "1%", (0, 1));
        check(2, "1", "50", (1, 2));
        check(0, "25%", "25%", (0, 0));
    }

    #[test]
    fn recreate_has_neither() {
        let mut deployment = deployment(10, "25%", "25%");
        deployment.spec.strategy.r#type = "Recreate".into();
        assert_eq!((max_surge(&deployment), max_unavailable(&deployment)), (0, 0));
    }

    #[test]
    fn the_new_set_grows_only_into_the_room_there_is() {
        let deployment = deployment(10, "3", "2");
        assert_eq!(new_size(&deployment, 0, 10), 3);
        assert_eq!(new_size(&deployment, 3, 13), 3);
        assert_eq!(new_size(&deployment, 3, 11), 5);
        assert_eq!(new_size(&deployment, 9, 10), 10);
        assert_eq!(new_size(&deployment, 0, 0), 10);
    }

    #[test]
    fn shares_are_proportional_and_never_more_than_is_left() {
        let grown = deployment(20, "5", "0");
        assert_eq!(share(&grown, 8, Some(10), 15, 0), 12);
        assert_eq!(share(&grown, 2, Some(10), 15, 12), 3);
        assert_eq!(share(&grown, 2, Some(10), 15, 14), 1);
        let to_zero = deployment(0, "5", "0");
        assert_eq!(share(&to_zero, 8, Some(10), -10, 0), -8);
    }
}
