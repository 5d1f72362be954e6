//! The windows that there are, and those that are remembered.

use super::*;
use crate::{
    addr::HostAddr,
    op::{Moves, OpType},
};

fn addr(last: u8) -> HostAddr {
    [192, 0, 2, last].into()
}

fn control(remotes: u32) -> CongestionControl {
    let builder = CcConfigBuilder { remotes, ..CcConfigBuilder::default() };
    CongestionControl::new(builder.build().unwrap())
}

fn nack(cc: &mut CongestionControl, id: RemoteWindowId) {
    cc.on_completion(id, &feedback(RTT, OpStatus::Nack, 0.0, 5.0), USED);
}

//= 1rma#6-windows
//= type=test
#[test]
fn each_remote_nic_and_direction_has_a_window_of_its_own() {
    let mut cc = control(8);
    let id = cc.hold(addr(1), Moves::In).unwrap().id;
    let others = [
        cc.hold(addr(1), Moves::Out).unwrap().id,
        cc.hold(addr(2), Moves::In).unwrap().id,
        cc.hold("2001:db8::1".parse().unwrap(), Moves::In).unwrap().id,
    ];
    nack(&mut cc, id);
    assert!(cc.remote_cwnd(id) < 2.0);
    for other in others {
        assert_eq!(cc.remote_cwnd(other), 16.0);
    }
    let again = Ok(Held { id, is_new: false });
    assert_eq!(cc.hold(addr(1), Moves::In), again, "held twice, one window");
}

//= 1rma#6-windows
//= type=test
#[test]
fn there_is_one_local_window_for_all_remote_nics() {
    let mut cc = control(8);
    let ids = [1, 2].map(|last| cc.hold(addr(last), Moves::In).unwrap().id);
    cc.on_completion(ids[0], &feedback(RTT, OpStatus::DispatchTimeout, 10.0, 0.0), USED);
    for id in ids {
        assert_near(cc.window(id).cwnd(), 1.6);
    }
}

//= 1rma#6-windows
//= type=test
#[test]
fn reads_are_inbound_and_writes_outbound() {
    assert_eq!(OpType::Read.shape().moves, Moves::In);
    assert_eq!(OpType::Write.shape().moves, Moves::Out);
    assert_eq!(OpType::Rekey.shape().moves, Moves::Out);
}

#[test]
fn a_released_window_is_remembered_until_its_place_is_needed() {
    let mut cc = control(2);
    let first = cc.hold(addr(1), Moves::In).unwrap().id;
    nack(&mut cc, first);
    cc.release(first);
    let again = cc.hold(addr(1), Moves::In).unwrap().id;
    assert_near(cc.remote_cwnd(again), 1.6);
    cc.release(again);
    // Two others take both places.
    for last in [2, 3] {
        cc.hold(addr(last), Moves::In).unwrap();
    }
    let error = cc.hold(addr(1), Moves::In).unwrap_err();
    assert_eq!(error, AllHeld { remotes: 2 });
    assert!(error.to_string().starts_with("all 2 remote congestion windows are in use"));
}

#[test]
fn a_held_window_is_never_forgotten() {
    let mut cc = control(4);
    let held = cc.hold(addr(1), Moves::In).unwrap().id;
    nack(&mut cc, held);
    for last in 2..=255 {
        let other = cc.hold(addr(last), Moves::In).unwrap().id;
        assert_ne!(other, held);
        assert_eq!(cc.remote_cwnd(other), 16.0, "a new remote NIC starts anew");
        cc.release(other);
        assert_eq!(cc.hold(addr(last), Moves::In).map(|it| it.id), Ok(other));
        cc.release(other);
    }
    assert_eq!(cc.hold(addr(1), Moves::In).map(|it| it.id), Ok(held));
    assert_near(cc.remote_cwnd(held), 1.6);
}

#[test]
#[should_panic(expected = "a window is released once per hold")]
fn a_window_is_not_released_twice() {
    let mut cc = control(2);
    let id = cc.hold(addr(1), Moves::In).unwrap().id;
    cc.release(id);
    cc.release(id);
}
