//! The steps of a region's rotator, and the tasks of its driver.

use core::time::Duration;

use rma_core::{op::OpStatus, time::Instant};

use super::{NOON_MS, after, name, region, secret};
use crate::{
    audit::What,
    catalog::CatalogError,
    epoch::{Epoch, Life},
    limits::EPOCH_MIN,
    policy::Policy,
    rotation::{Alarm, Plan, Rotation, Schedule, Todo, Turn, Way},
    secret::RegionSecret,
    service::{Service, ServiceConfig},
    time::{Now, WallTime},
};

const ALLOW: &str = r#"
[[allow]]
region = "kv/index"
identity = "spiffe://example.org/kv/client/*"
ops = ["read"]
"#;

/// A service with one region, and its rotator.
struct Owner {
    now: Now,
    service: Service<Policy>,
    rotation: Rotation,
    drawn: u8,
    events: Vec<What>,
}

/// A task that the driver was given, without the key.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Wait(Option<Instant>),
    Rekey { under: u64, to: u64 },
    Probe { under: u64 },
}

impl Owner {
    fn new(way: Way, period: Duration, policy: &str) -> Self {
        let policy = Policy::parse(policy).unwrap();
        let mut service = Service::new(Life([7; 8]), policy, ServiceConfig::default());
        let plan = Plan { way, schedule: Schedule::every(period), seed: 1 };
        let now = after(0);
        let mut fresh = || unreachable!("the first key is the host's");
        let mut turn = Turn { now, service: &mut service, fresh: &mut fresh, events: Vec::new() };
        let first = secret(1);
        let rotation =
            Rotation::publish(&mut turn, name("kv/index"), region(), &first, plan).unwrap();
        Self { now, service, rotation, drawn: 1, events: Vec::new() }
    }

    fn hourly(way: Way) -> Self {
        Self::new(way, Duration::from_secs(3600), ALLOW)
    }

    fn turn<R>(
        &mut self,
        act: impl FnOnce(&mut Rotation, &mut Turn<'_, Policy>) -> Result<R, CatalogError>,
    ) -> R {
        let Self { now, service, rotation, drawn, events } = self;
        let mut fresh = || {
            *drawn += 1;
            RegionSecret::new(&mut [*drawn; 16])
        };
        let mut turn = Turn { now: *now, service, fresh: &mut fresh, events: Vec::new() };
        let result = act(rotation, &mut turn).unwrap();
        events.extend(turn.events.into_iter().map(|it| it.what));
        result
    }

    fn todo(&mut self) -> Told {
        match self.rotation.poll_todo(self.now.boot, &self.service) {
            Todo::Wait(until) => Told::Wait(until),
            Todo::Rekey { under, to, .. } => Told::Rekey { under: under.number, to: to.number },
            Todo::Probe { under } => Told::Probe { under: under.number },
        }
    }

    /// Time passes until there is something to do.
    fn wait(&mut self) -> Told {
        for _ in 0..100 {
            match self.todo() {
                Told::Wait(Some(until)) => {
                    self.pass(until.since(self.now.boot));
                    self.turn(Rotation::handle_timeout);
                }
                told => return told,
            }
        }
        panic!("nothing to do but to wait");
    }

    fn pass(&mut self, time: Duration) {
        let millis = |at: Instant| at.since(Instant::ZERO).as_millis() as i64;
        let later = self.now.boot + time;
        self.step_wall(millis(later) - millis(self.now.boot));
        self.now.boot = later;
    }

    fn step_wall(&mut self, millis: i64) {
        self.now.wall = WallTime::from_unix_millis(self.now.wall.unix_millis() + millis);
    }

    fn rekey(&mut self, to: u64, status: OpStatus) {
        self.turn(|rotation, turn| rotation.handle_rekey(turn, epoch(to), status));
    }

    fn probe(&mut self, under: u64, status: OpStatus) {
        self.turn(|rotation, turn| rotation.handle_probe(turn, epoch(under), status));
    }

    /// The present epoch, and the next.
    fn epochs(&self) -> (u64, Option<u64>) {
        let entry = self.service.catalog().find(self.rotation.name()).unwrap();
        (entry.present().epoch().number, entry.next().map(|it| it.epoch().number))
    }

    fn seconds(&self) -> u64 {
        self.now.boot.since(Instant::ZERO).as_secs()
    }
}

const fn epoch(number: u64) -> Epoch {
    Epoch { life: Life([7; 8]), number }
}

use OpStatus::{
    DispatchTimeout, Nack, Ok as Done, RemoteAuthenticationFailure as Refused, Timeout,
};

//= 1rma#5.2-predistributed
//= type=test
#[test]
fn a_key_is_announced_a_lead_before_its_turn_and_installed_at_it() {
    let mut owner = Owner::hourly(Way::Host);
    let Told::Wait(Some(announce_at)) = owner.todo() else { panic!("it waits") };
    owner.pass(announce_at.since(owner.now.boot));
    assert!((2_900..=3_600).contains(&owner.seconds()), "{}", owner.seconds());
    owner.turn(Rotation::handle_timeout);
    assert_eq!(owner.epochs(), (1, Some(2)));
    let Told::Wait(Some(swap_at)) = owner.todo() else { panic!("it waits") };
    let lead = swap_at.since(announce_at).as_secs();
    assert!((324..=396).contains(&lead), "{lead}");
    assert_eq!(owner.wait(), Told::Rekey { under: 1, to: 2 });
    assert_eq!(owner.epochs(), (1, Some(2)), "both, until the responder has it");
    assert_eq!(owner.todo(), Told::Wait(Some(swap_at + Duration::from_nanos(100_000_001))));
    owner.rekey(2, Done);
    assert_eq!(owner.epochs(), (2, None));
    let counters = owner.rotation.counters();
    assert_eq!((counters.rotated, counters.late_epochs, counters.rekeys), (1, 0, 1));
    assert_eq!(owner.rotation.poll_alarm(), None);
    let was = matches!(owner.events[..], [What::Announced { .. }, What::Installed { .. }]);
    assert!(was, "{:?}", owner.events);
}

#[test]
fn on_command_both_keys_are_in_the_catalog_before_the_responder_is_told() {
    let mut owner = Owner::hourly(Way::Host);
    owner.turn(Rotation::rotate);
    assert_eq!(owner.epochs(), (1, Some(2)));
    assert_eq!(owner.todo(), Told::Rekey { under: 1, to: 2 });
    owner.turn(Rotation::rotate);
    assert!(matches!(owner.todo(), Told::Wait(_)), "it is under way");
    owner.rekey(2, Done);
    owner.rekey(2, Done);
    assert_eq!((owner.epochs(), owner.rotation.counters().rotated), ((2, None), 1));
    // An announced key is installed before its time.
    let Told::Wait(Some(at)) = owner.todo() else { panic!("it waits") };
    owner.pass(at.since(owner.now.boot));
    owner.turn(Rotation::handle_timeout);
    assert_eq!(owner.epochs(), (2, Some(3)));
    owner.turn(Rotation::rotate);
    assert_eq!(owner.todo(), Told::Rekey { under: 2, to: 3 });
    let entry = owner.service.catalog().find(&name("kv/index")).unwrap();
    assert_eq!(entry.present().term().ends_at, owner.now.boot, "no key is given for longer");
}

#[test]
fn a_withdrawal_ends_with_a_key_that_was_never_announced() {
    let mut owner = Owner::hourly(Way::Host);
    let Told::Wait(Some(at)) = owner.todo() else { panic!("it waits") };
    owner.pass(at.since(owner.now.boot));
    owner.turn(Rotation::handle_timeout);
    assert_eq!(owner.epochs(), (1, Some(2)));
    owner.turn(Rotation::withdraw);
    assert_eq!(owner.epochs(), (1, Some(3)));
    assert_eq!(owner.todo(), Told::Rekey { under: 1, to: 3 });
    // Again, while the host is at it: who is let in meanwhile needs both.
    owner.turn(Rotation::withdraw);
    assert_eq!(owner.epochs(), (1, Some(3)));
    owner.rekey(3, Done);
    assert_eq!((owner.epochs(), owner.todo()), ((3, Some(4)), Told::Rekey { under: 3, to: 4 }));
    owner.turn(Rotation::withdraw);
    owner.rekey(4, DispatchTimeout);
    assert_eq!(owner.epochs(), (3, Some(5)), "it was not done, and never will be");
    assert_eq!(owner.todo(), Told::Rekey { under: 3, to: 5 });
    owner.rekey(5, Done);
    assert_eq!((owner.epochs(), owner.rotation.counters().withdrawn), ((5, None), 3));
}

#[test]
fn a_host_that_cannot_rekey_is_asked_again_with_the_same_key_and_the_epoch_is_late() {
    let mut owner = Owner::hourly(Way::Host);
    let told = owner.wait();
    assert_eq!(told, Told::Rekey { under: 1, to: 2 });
    let began = owner.seconds();
    for _ in 0..10 {
        owner.rekey(2, DispatchTimeout);
        assert_eq!(owner.wait(), told, "the same key");
    }
    let took = owner.seconds() - began;
    assert!((40..=50).contains(&took), "0.1 s, doubling to 10 s: {took}");
    let Some(Alarm::Late { by }) = owner.rotation.poll_alarm() else { panic!("no alarm") };
    assert!(by > Duration::from_millis(100) && owner.rotation.poll_alarm().is_none(), "once");
    owner.rekey(2, Done);
    assert_eq!(owner.rotation.counters().late_epochs, 1);
}

#[test]
fn a_rotator_that_comes_late_rotates_at_once() {
    let mut owner = Owner::hourly(Way::Host);
    owner.pass(Duration::from_secs(5_000));
    owner.turn(Rotation::handle_timeout);
    assert_eq!(owner.todo(), Told::Rekey { under: 1, to: 2 });
    owner.rekey(2, Done);
    assert_eq!(owner.rotation.counters().late_epochs, 1);
    let entry = owner.service.catalog().find(&name("kv/index")).unwrap();
    assert!(entry.present().term().ends_at > owner.now.boot + Duration::from_secs(3_000));
}

//= 1rma#5.2-rekey
//= type=test
#[test]
fn a_rekey_of_which_nobody_knows_the_outcome_is_found_out_by_a_probe() {
    for status in [Timeout, Refused] {
        let mut owner = Owner::hourly(Way::Rekey);
        owner.turn(Rotation::rotate);
        assert_eq!(owner.todo(), Told::Rekey { under: 1, to: 2 });
        owner.rekey(2, status);
        assert_eq!(owner.epochs(), (1, Some(2)), "both, as nobody knows");
        assert_eq!(owner.todo(), Told::Probe { under: 2 });
        owner.probe(2, Timeout);
        assert_eq!(owner.wait(), Told::Probe { under: 2 });
        // Sealed under the key, whatever it says.
        owner.probe(2, OpStatus::RemotePermissionDenied);
        assert_eq!(owner.epochs(), (2, None));
        assert_eq!(owner.rotation.poll_alarm(), None);
    }
}

#[test]
fn a_rekey_that_did_not_take_effect_is_done_again_with_the_same_key() {
    let mut owner = Owner::hourly(Way::Rekey);
    owner.turn(Rotation::rotate);
    let rekey = Told::Rekey { under: 1, to: 2 };
    assert_eq!(owner.todo(), rekey);
    owner.rekey(2, Nack);
    assert_eq!(owner.wait(), rekey);
    owner.rekey(2, Timeout);
    assert_eq!(owner.todo(), Told::Probe { under: 2 });
    owner.probe(2, Refused);
    assert_eq!(owner.todo(), rekey, "at once");
    owner.rekey(2, Done);
    let counters = owner.rotation.counters();
    assert_eq!((owner.epochs(), counters.rekeys, counters.probes), ((2, None), 3, 1));
}

#[test]
fn both_keys_refused_in_turn_alarm_and_go_on_more_and_more_slowly() {
    let mut owner = Owner::hourly(Way::Rekey);
    owner.turn(Rotation::rotate);
    let mut waits = Vec::new();
    let mut alarms = Vec::new();
    for _ in 0..9 {
        let since = owner.now.boot;
        assert_eq!(owner.wait(), Told::Rekey { under: 1, to: 2 });
        waits.push(owner.now.boot.since(since).as_millis());
        owner.rekey(2, Refused);
        assert_eq!(owner.todo(), Told::Probe { under: 2 });
        owner.probe(2, Refused);
        alarms.extend(owner.rotation.poll_alarm());
    }
    // The wait in which it became late is in two parts.
    assert_eq!(waits, [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000]);
    assert!(alarms.iter().all(|it| *it == Alarm::BothRefused), "{alarms:?}");
    assert_eq!(owner.epochs(), (1, Some(2)), "both keys stay, until it is known");
}

#[test]
fn a_region_that_refuses_to_be_rekeyed_alarms() {
    let mut owner = Owner::hourly(Way::Rekey);
    owner.turn(Rotation::rotate);
    assert!(matches!(owner.todo(), Told::Rekey { .. }));
    owner.rekey(2, OpStatus::RemotePermissionDenied);
    let status = OpStatus::RemotePermissionDenied;
    assert_eq!(owner.rotation.poll_alarm(), Some(Alarm::NotPermitted { status }));
    assert_eq!(owner.wait(), Told::Rekey { under: 1, to: 2 });
}

#[test]
fn a_withdrawal_while_a_rekey_is_unknown_waits_for_that_and_then_takes_a_fresh_key() {
    let mut owner = Owner::hourly(Way::Rekey);
    owner.turn(Rotation::rotate);
    owner.turn(Rotation::withdraw);
    assert_eq!(owner.epochs(), (1, Some(3)), "nothing has been tried: a fresh key at once");
    assert_eq!(owner.todo(), Told::Rekey { under: 1, to: 3 });
    owner.turn(Rotation::withdraw);
    assert_eq!(owner.epochs(), (1, Some(3)), "it may be in force");
    owner.rekey(3, Timeout);
    assert_eq!(owner.todo(), Told::Probe { under: 3 });
    owner.turn(Rotation::withdraw);
    assert_eq!(owner.epochs(), (1, Some(3)));
    owner.probe(3, Done);
    assert_eq!(owner.epochs(), (3, Some(4)));
    assert_eq!(owner.todo(), Told::Rekey { under: 3, to: 4 });
    owner.rekey(4, Done);
    assert_eq!(owner.epochs(), (4, None));
}

/// [`ALLOW`], until so many seconds after the start.
fn until(seconds: i64) -> String {
    let until = WallTime::from_unix_millis(NOON_MS + seconds * 1000);
    format!("{ALLOW}until = \"{until}\"\n")
}

#[test]
fn the_last_key_before_a_date_is_followed_by_one_that_was_never_announced() {
    let mut owner = Owner::new(Way::Host, Duration::from_secs(3600), &until(1_000));
    // Those whom the date shuts out would hold what is announced before it.
    let mut rotations = 0;
    while owner.seconds() < 1_000 {
        assert!(matches!(owner.wait(), Told::Rekey { .. }));
        owner.rekey(owner.epochs().1.unwrap(), Done);
        rotations += 1;
        assert!(rotations < 10);
    }
    // The epoch of the key that was given last ended with the date.
    assert_eq!(owner.seconds(), 1_000);
    let announced_before = |it: &&What| matches!(it, What::Announced { .. });
    assert_eq!(owner.events.iter().filter(announced_before).count() as u64, rotations - 1);
    assert!(matches!(owner.events.last_chunk().unwrap(), [What::Replaced { .. }, _]));
    let entry = owner.service.catalog().find(&name("kv/index")).unwrap();
    assert!(entry.present().term().ends_at > owner.now.boot + Duration::from_secs(3_000));
}

#[test]
fn a_date_that_the_wall_clock_is_stepped_past_ends_the_epoch_within_ten_seconds() {
    let mut owner = Owner::new(Way::Host, Duration::from_secs(3600), &until(86_400));
    let wait = owner.todo();
    owner.step_wall(-86_400_000);
    assert_eq!(owner.todo(), wait, "nothing else goes by the wall clock");
    owner.step_wall(3 * 86_400_000);
    assert_eq!(owner.wait(), Told::Rekey { under: 1, to: 2 });
    assert!(owner.seconds() <= 10, "{}", owner.seconds());
    assert_eq!(owner.rotation.counters().withdrawn, 1);
}

#[test]
fn a_date_is_kept_by_an_epoch_that_began_while_the_wall_clock_was_a_day_ahead() {
    let mut owner = Owner::new(Way::Host, Duration::from_secs(3600), &until(1_000));
    owner.step_wall(86_400_000);
    assert_eq!(owner.wait(), Told::Rekey { under: 1, to: 2 });
    owner.rekey(2, Done);
    let ends_at = |owner: &Owner| {
        let entry = owner.service.catalog().find(&name("kv/index")).unwrap();
        entry.present().term().ends_at.since(Instant::ZERO).as_secs()
    };
    assert!(ends_at(&owner) > 3_000, "nobody may have it for less");
    // From here on the rule allows again.
    owner.step_wall(-86_400_000);
    let Told::Wait(Some(until)) = owner.todo() else { panic!("it waits") };
    owner.pass(until.since(owner.now.boot));
    owner.turn(Rotation::handle_timeout);
    assert!(owner.seconds() <= 20, "{}", owner.seconds());
    assert_eq!(ends_at(&owner), 1_000);
}

#[test]
fn a_policy_with_a_shorter_lifetime_ends_the_present_epoch_sooner() {
    let mut owner = Owner::hourly(Way::Host);
    let policy = format!("{ALLOW}{}lifetime = \"10s\"\n", ALLOW.replace("client", "guest"));
    let reloaded = owner.service.reload(owner.now, Policy::parse(&policy).unwrap());
    assert_eq!(reloaded.withdrawn, []);
    owner.turn(Rotation::handle_policy);
    assert!(matches!(owner.wait(), Told::Rekey { .. }));
    assert!((5..=10).contains(&owner.seconds()), "{}", owner.seconds());
}

#[test]
fn a_rule_that_comes_while_a_key_is_announced_bounds_that_key_too() {
    let mut owner = Owner::hourly(Way::Host);
    let Told::Wait(Some(announce_at)) = owner.todo() else { panic!("it waits") };
    owner.pass(announce_at.since(owner.now.boot));
    owner.turn(Rotation::handle_timeout);
    assert_eq!(owner.epochs(), (1, Some(2)));
    let policy = format!("{ALLOW}{}lifetime = \"10s\"\n", ALLOW.replace("client", "guest"));
    let given = owner.seconds();
    assert_eq!(owner.service.reload(owner.now, Policy::parse(&policy).unwrap()).withdrawn, []);
    owner.turn(Rotation::handle_policy);
    // A client that is given it now may have it for ten seconds: by then neither key is good.
    assert_eq!(owner.wait(), Told::Rekey { under: 1, to: 2 });
    owner.rekey(2, Done);
    assert_eq!(owner.wait(), Told::Rekey { under: 2, to: 3 });
    assert!(owner.seconds() <= given + 10, "{}", owner.seconds() - given);
}

#[test]
fn no_key_is_good_for_longer_than_its_rule_says() {
    for lifetime in [1, 5, 60, 7_200] {
        let policy = format!("{ALLOW}lifetime = \"{lifetime}s\"\n");
        let mut owner = Owner::new(Way::Host, Duration::from_secs(3600), &policy);
        let lifetime = Duration::from_secs(lifetime);
        // When each epoch's key was first given, by number.
        let mut given = vec![Instant::ZERO; 3];
        for _ in 0..60 {
            let (present, next) = owner.epochs();
            if let Some(next) = next
                && given.len() as u64 == next + 1
            {
                given.push(owner.now.boot);
            }
            match owner.todo() {
                Told::Wait(until) => {
                    owner.pass(until.expect("it is not under way").since(owner.now.boot));
                    owner.turn(Rotation::handle_timeout);
                }
                Told::Rekey { to, .. } => {
                    let lasted = owner.now.boot.since(given[present as usize + 1]);
                    assert!(lasted <= lifetime.max(EPOCH_MIN), "{lasted:?} of {lifetime:?}");
                    owner.rekey(to, Done);
                }
                told @ Told::Probe { .. } => panic!("{told:?}"),
            }
        }
        assert!(owner.rotation.counters().rotated > 10);
    }
}

#[test]
fn a_region_that_is_not_in_the_catalog_any_more_is_an_error_by_name() {
    let mut owner = Owner::hourly(Way::Host);
    owner.service.remove(owner.now, &name("kv/index")).unwrap();
    assert_eq!(owner.todo(), Told::Wait(None));
    let Owner { now, service, rotation, .. } = &mut owner;
    let mut turn = Turn { now: *now, service, fresh: &mut || unreachable!(), events: Vec::new() };
    let error = rotation.handle_timeout(&mut turn).unwrap_err();
    assert_eq!(error, CatalogError::Unknown { name: name("kv/index") });
}
