//! The keys that clients get while keys change.

use core::time::Duration;

use rma_core::{op::OpType, region::RegionId};

use super::{
    addresses, after, at, name, region, secret,
    service::{POLICY, ask, granted, service, wanted},
    term,
};
use crate::{
    catalog::{Catalog, CatalogError, Region},
    epoch::{Epoch, Life},
    message::reply::{Answer, EpochKeys},
    policy::Policy,
    service::{Service, ServiceConfig},
};

/// Asks for READs of `kv/index` as a client that has `have`.
fn fetch(service: &mut Service<Policy>, seconds: u64, have: Option<Epoch>) -> Answer {
    let mut wanted = wanted("kv/index", &[OpType::Read]);
    wanted.have = have;
    ask(service, seconds, wanted)
}

fn key(keys: &EpochKeys) -> [u8; 16] {
    *keys.keys[0].1.derived_key().expose()
}

//= 1rma#5.2-predistributed
//= type=test
#[test]
fn a_next_key_is_handed_out_before_and_is_the_one_that_comes() {
    let mut service = service();
    let before = granted(fetch(&mut service, 0, None));
    assert_eq!(before.present.lifetime, Duration::from_secs(3600));
    assert!(before.next.is_none());
    // It comes back in the last ten minutes, when the next is announced.
    let refresh = before.refresh.as_secs();
    assert!((3000..=3480).contains(&refresh), "{refresh}");
    let current = fetch(&mut service, 10, Some(before.present.epoch));
    let Answer::Current { lifetime, .. } = current else { panic!("{current:?}") };
    assert_eq!(lifetime, Duration::from_secs(3590));

    let name = name("kv/index");
    let next_term = term(at(6600), at(7200));
    let (epoch, _) = service.announce(after(3000), &name, &secret(2), at(3600), next_term).unwrap();
    let both = granted(fetch(&mut service, 3100, Some(before.present.epoch)));
    assert_eq!(key(&both.present), key(&before.present));
    assert_eq!(both.present.lifetime, Duration::from_secs(500));
    let next = both.next.expect("announced");
    assert_eq!((next.epoch, next.lifetime), (epoch, Duration::from_secs(4100)));
    assert!(both.refresh >= Duration::from_secs(3500), "once an epoch");
    let current = fetch(&mut service, 3200, Some(epoch));
    assert!(matches!(current, Answer::Current { .. }), "it has the next: {current:?}");

    // While the Rekey is under way both are given, as nobody knows which one holds.
    let swapping = granted(fetch(&mut service, 3601, None));
    assert_eq!(swapping.present.lifetime, Duration::ZERO);
    assert_eq!(key(swapping.next.as_ref().expect("still both")), key(&next));
    service.install(after(3602), &name, epoch).unwrap();
    let done = granted(fetch(&mut service, 3602, Some(before.present.epoch)));
    assert_eq!((key(&done.present), done.present.epoch), (key(&next), epoch));
    assert!(done.next.is_none());
    assert_eq!(service.counters().late_epochs, 0);
}

#[test]
fn a_late_rotator_is_counted_and_no_key_is_given_for_longer_than_its_epoch() {
    let mut service = service();
    for seconds in [3599, 3600, 5000] {
        let granted = granted(fetch(&mut service, seconds, None));
        let left = Duration::from_secs(3600_u64.saturating_sub(seconds));
        assert_eq!(granted.present.lifetime, left);
        let refresh = granted.refresh;
        let soon = Duration::from_millis(1)..=Duration::from_secs(1);
        assert!(soon.contains(&refresh), "{refresh:?}");
    }
    assert_eq!(service.counters().late_epochs, 2);
}

#[test]
fn a_withdrawal_puts_a_fresh_key_in_place_of_the_one_that_is_announced() {
    let mut service = service();
    let name = name("kv/index");
    let long = term(at(7000), at(7200));
    service.announce(after(3000), &name, &secret(2), at(3600), long).unwrap();
    let held = granted(fetch(&mut service, 3001, None)).next.expect("announced");
    // The policy now allows clients nothing: what they hold has to go.
    let reloaded = service.reload(after(3100), Policy::parse("allow = []").unwrap());
    assert_eq!(reloaded.withdrawn, core::slice::from_ref(&name));
    assert_eq!(fetch(&mut service, 3100, None), Answer::Denied);
    let (epoch, _) = service.replace(after(3100), &name, &secret(3), long).unwrap();
    assert!(epoch.number > held.epoch.number, "numbers are not used twice");
    let error = service.install(after(3100), &name, held.epoch).unwrap_err();
    assert!(matches!(error, CatalogError::NotAnnounced { .. }), "{error}");
    service.install(after(3100), &name, epoch).unwrap();
    // Somebody who may have it again gets another key than the withdrawn held.
    service.reload(after(3200), Policy::parse(POLICY).unwrap());
    let now = granted(fetch(&mut service, 3200, Some(held.epoch)));
    assert_ne!(key(&now.present), key(&held));
    assert!(now.next.is_none());
}

#[test]
fn the_holder_of_an_epoch_of_an_earlier_life_is_given_the_present_keys() {
    let mut service = service();
    let earlier = Epoch { life: Life([8; 8]), number: 1 };
    let answer = fetch(&mut service, 0, Some(earlier));
    assert!(matches!(answer, Answer::Granted(_)), "the number alone says nothing: {answer:?}");
}

#[test]
fn waiting_times_are_spread_and_follow_from_the_seed() {
    let times = |seed| {
        let config = ServiceConfig { seed, ..ServiceConfig::default() };
        let policy = Policy::parse(POLICY).unwrap();
        let mut service = Service::new(Life([7; 8]), policy, config);
        let hour = term(at(3000), at(3600));
        service.publish(after(0), name("kv/index"), region(), &secret(1), hour).unwrap();
        let refresh = |_| granted(fetch(&mut service, 0, None)).refresh;
        (0..500).map(refresh).collect::<Vec<_>>()
    };
    let first = times(1);
    assert_eq!(first, times(1));
    assert_ne!(first, times(2));
    let seconds = |it: &Duration| it.as_secs();
    let (least, most) =
        (first.iter().map(seconds).min().unwrap(), first.iter().map(seconds).max().unwrap());
    assert!((3000..3020).contains(&least) && (3460..3480).contains(&most), "{least} to {most}");
}

#[test]
fn a_catalog_is_changed_by_what_makes_sense_alone() {
    let mut catalog = Catalog::new(Life([0; 8]));
    let (a, hour) = (name("a"), term(at(50), at(60)));
    let unknown = CatalogError::Unknown { name: a.clone() };
    assert_eq!(catalog.remove(&a), Err(unknown.clone()));
    assert_eq!(catalog.announce(&a, &secret(1), at(9), hour), Err(unknown.clone()));
    let nowhere = Region { responders: addresses(&[]), ..region() };
    let error = catalog.publish(a.clone(), nowhere, &secret(1), hour).unwrap_err();
    assert!(matches!(error, CatalogError::NoAddress { .. }), "{error}");
    let backwards = term(at(61), at(60));
    let error = catalog.publish(a.clone(), region(), &secret(1), backwards).unwrap_err();
    assert!(matches!(error, CatalogError::Term { .. }), "{error}");

    catalog.publish(a.clone(), region(), &secret(1), hour).unwrap();
    let same = CatalogError::SameKey { name: a.clone() };
    assert_eq!(catalog.announce(&a, &secret(1), at(9), hour), Err(same.clone()));
    assert_eq!(catalog.find(&a).unwrap().present().term(), hour, "an error changes nothing");
    let epoch = catalog.announce(&a, &secret(2), at(9), hour).unwrap();
    assert_eq!(catalog.find(&a).unwrap().present().term(), term(at(9), at(9)));
    let error = catalog.announce(&a, &secret(3), at(9), hour).unwrap_err();
    assert_eq!(error, CatalogError::Announced { name: a.clone(), epoch });
    assert_eq!(catalog.replace(&a, &secret(2), at(9), hour), Err(same));
    let fresh = catalog.replace(&a, &secret(3), at(9), hour).unwrap();
    catalog.install(&a, fresh).unwrap();
    assert!(catalog.install(&a, fresh).is_err(), "once");

    // Registered anew: another region, another key, a higher number.
    let anew = catalog.publish(a.clone(), region(), &secret(4), hour).unwrap();
    assert!(anew.number > fresh.number && catalog.find(&a).unwrap().next().is_none());
    assert_eq!(catalog.names().collect::<Vec<_>>(), [&a]);
    catalog.remove(&a).unwrap();
    assert_eq!(catalog.remove(&a), Err(unknown));
}

#[test]
fn a_region_has_one_name_and_a_second_one_is_refused_by_both() {
    let mut catalog = Catalog::new(Life([0; 8]));
    let (a, b, hour) = (name("a"), name("b"), term(at(50), at(60)));
    catalog.publish(a.clone(), region(), &secret(4), hour).unwrap();
    // At whichever of its host's addresses; another host's is another.
    let wide = Region { responders: addresses(&["2001:db8::2", "192.0.2.2"]), ..region() };
    let error = catalog.publish(b.clone(), wide, &secret(5), hour).unwrap_err();
    assert_eq!(error, CatalogError::SameRegion { name: b.clone(), other: a.clone() });
    assert!(error.to_string().contains("b is the region that is published as a"), "{error}");
    let elsewhere = Region { responders: addresses(&["192.0.2.3"]), ..region() };
    catalog.publish(b.clone(), elsewhere, &secret(5), hour).unwrap();
    // Once its name is another region's, it may have another.
    let other = Region { id: RegionId::from_bits(6), ..region() };
    catalog.publish(a.clone(), other, &secret(6), hour).unwrap();
    catalog.publish(b.clone(), wide, &secret(7), hour).unwrap();
    catalog.publish(name("c"), elsewhere, &secret(8), hour).unwrap();
    catalog.remove(&b).unwrap();
    catalog.remove(&a).unwrap();
    catalog.publish(a, wide, &secret(9), hour).unwrap();
}
