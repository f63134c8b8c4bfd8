//! MySQL is proven, with its backups: whatever goes wrong, its lives end as if nothing had, and operators that make one
//! of the classic mistakes are caught.
//!
//! Servers and agents are a model here (`world`), so that every moment of a life can be begun at. The same lives with
//! real servers are beside the binary that runs them.

#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]

mod broken;
mod lives;
mod rules;
mod world;

use ballast_mysql::{MySQLBackupOperator, MySQLOperator};
use ballast_proving::{Life, Prove, Sample};

use world::World;

fn check(life: Life) {
    let sample = Sample { crashes: 8, write_faults: 4, watch_faults: 3, action_faults: 0 };
    let prove = Prove::new(MySQLOperator::default).beside(MySQLBackupOperator::default);
    rules::held(prove.service(World::default()).life(life).sample(sample)).run().assert_clean();
}

#[test]
fn whatever_goes_wrong_a_mysql_is_configured_once_grows_and_leaves_its_last_backup() {
    check(lives::configured());
}

#[test]
fn whatever_goes_wrong_backups_are_what_they_say_and_the_last_good_one_is_there() {
    check(lives::backed_up());
}

#[test]
fn whatever_goes_wrong_an_instance_begins_with_the_backup_that_it_was_given() {
    check(lives::restored());
}

#[test]
fn whatever_goes_wrong_an_upgrade_begins_with_a_backup_and_comes_to_its_end() {
    check(lives::upgraded());
}

#[test]
fn whatever_goes_wrong_what_is_kept_is_taken_up_again() {
    check(lives::kept());
}
