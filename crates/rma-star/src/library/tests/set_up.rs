//! Connections are set up, or are not.

use core::time::Duration;

use rma_core::addr::LocalAddresses;

use super::*;
use crate::library::terms::{Answer, Confirm, End, Given, Offer, Terms};
use crate::{clock::ZTime, keys::FrameKey, library::negotiate::Part, names::Side};

const KEY: [u8; 16] = *b"the key of both.";
const CLOCK: u64 = 1 << 40;
/// W of the engines.
const VALID_MICROS: u32 = 16_000;

impl Host {
    /// The engine answers all that it was told but for work requests.
    fn engine_turn(&mut self, now: Instant) {
        self.take_posts();
        let valid_micros = VALID_MICROS;
        while let Some(post) = self.others.pop_front() {
            match post {
                Post::Open { qp, is_stateful } => {
                    self.opened = self.engine.memory().record(qp);
                    let key = if is_stateful { [0; 16] } else { KEY };
                    if !is_stateful {
                        let word = QpWord { nonce: 0, era: 0, heard: 0, state: WordState::Open };
                        self.engine.set_qp_word(qp, word);
                    }
                    self.report(
                        now,
                        &Report::Opened { qp, status: Success, key, clock: CLOCK, valid_micros },
                    );
                }
                Post::OpenRc { qp, connects } => {
                    let key = if connects { KEY } else { [0; 16] };
                    self.report(
                        now,
                        &Report::Opened { qp, status: Success, key, clock: CLOCK, valid_micros },
                    );
                }
                Post::Introduce { qp } => self.engine.note_taken(qp, Taken::default()),
                Post::Close { qp } => self.report(now, &Report::Closed { qp }),
                Post::Wqe(_) => unreachable!("those are kept elsewhere"),
                Post::Switch { .. } | Post::Answer { .. } | Post::TakeOver { .. } => {
                    unreachable!("roles stay")
                }
            }
        }
    }
}

/// Carries messages between two libraries until there are none, the first of them from one who has
/// called [`Verbs::connect`]. Returns how many there were.
pub(super) fn connect(now: Instant, one: (&mut Host, Qp), other: (&mut Host, Qp)) -> usize {
    let mut ends = [one, other];
    let mut messages = 0;
    for _ in 0..4 {
        for from in [0, 1] {
            let (host, qp) = &mut ends[from];
            host.engine_turn(now);
            if let Some(message) = host.verbs.poll_message(now, *qp) {
                let (host, qp) = &mut ends[1 - from];
                host.verbs.handle_message(now, *qp, &message).unwrap();
                messages += 1;
            }
        }
    }
    // Its engine has got the initial state.
    for (host, qp) in &mut ends {
        if host.verbs.is_stateful(*qp) == Some(true) {
            host.report(now, &Report::Ready { qp: qp.index });
        }
    }
    messages
}

fn two(one: Role, other: Role) -> ((Host, Qp), (Host, Qp)) {
    let (mut a, mut b) = (Host::new([192, 0, 2, 1]), Host::new([192, 0, 2, 2]));
    // Their numbers differ.
    let unused = b.qp(Role::Auto);
    b.verbs.close(at(0), unused);
    let _kept = a.qp(Role::Auto);
    let (qp_a, qp_b) = (a.qp(one), b.qp(other));
    ((a, qp_a), (b, qp_b))
}

//= star#IV-C-verbs
//= type=test
//= star#III-C1-explicit
//= type=test
#[test]
fn three_messages_make_both_ready_whoever_connects() {
    for (one, other) in [(Role::Stateless, Role::Stateful), (Role::Stateful, Role::Stateless)] {
        let ((mut a, qp_a), (mut b, qp_b)) = two(one, other);
        a.verbs.connect(at(5), qp_a).unwrap();
        assert_eq!(connect(at(5), (&mut a, qp_a), (&mut b, qp_b)), 3);
        assert_eq!(
            (a.verbs.state(qp_a), b.verbs.state(qp_b)),
            (Some(QpState::Ready), Some(QpState::Ready))
        );
        assert_eq!(a.verbs.is_stateful(qp_a), Some(one == Role::Stateful));
        let (z, f) = if one == Role::Stateless { (&a, &b) } else { (&b, &a) };
        let (qp_z, qp_f) = if one == Role::Stateless { (qp_a, qp_b) } else { (qp_b, qp_a) };
        let [record_z, record_f] = [z, f].map(|it| it.opened.expect("it is open"));
        // Both engines are told of the same connection.
        assert_eq!((record_z.pd, record_z.nonce), (record_f.pd, record_f.nonce));
        assert_eq!((record_f.nonce, record_f.pd), (qp_z.nonce, PD.0));
        assert_eq!(record_z.peer_qpn, f.verbs.qpn(qp_f).unwrap());
        assert_eq!(record_f.peer_qpn, z.verbs.qpn(qp_z).unwrap());
        assert_eq!(f.verbs.place.addresses.toward(record_f.peer), Some(record_z.peer));
        assert_eq!(z.verbs.place.addresses.toward(record_z.peer), Some(record_f.peer));
        // F has Z's clock and its key. When their engines have them, both put them away, and have
        // written what they would be called as the stateless side.
        assert_eq!((record_f.z_clock, record_f.key), (CLOCK, KEY));
        for (host, qp) in [(z, qp_z), (f, qp_f)] {
            let record = host.verbs.record(qp.index);
            assert_eq!((record.z_clock, record.key), (0, [0; 16]));
            assert_eq!((record.pd, record.nonce), (PD.0, qp.nonce));
        }
        assert_eq!((z.verbs.stateful, f.verbs.stateful), (0, 1));
    }
}

//= star#ours-failure-told-late
//= type=test
#[test]
fn the_engines_w_counts_where_a_library_was_told_a_shorter_one() {
    let ((mut a, qp_a), (mut b, qp_b)) = two(Role::Stateless, Role::Stateful);
    a.verbs.config.valid = Duration::from_millis(1);
    a.verbs.connect(at(5), qp_a).unwrap();
    connect(at(5), (&mut a, qp_a), (&mut b, qp_b));
    a.recv(at(5), qp_a, 1).unwrap();
    a.verbs.close(at(10), qp_a);
    a.engine_turn(at(10));
    a.verbs.poll(at(25));
    assert_eq!(a.ids(), [], "something may have effect");
    a.verbs.poll(at(40));
    assert_eq!(a.ids(), [(1, WrFlushErr)]);
}

//= star#III-C1-auto
//= type=test
#[test]
fn hosts_of_few_connections_are_both_stateful_and_so_are_those_that_want_it() {
    for (one, other) in [(Role::Auto, Role::Auto), (Role::Rc, Role::Auto), (Role::Auto, Role::Rc)] {
        let ((mut a, qp_a), (mut b, qp_b)) = two(one, other);
        a.verbs.connect(at(5_000), qp_a).unwrap();
        assert_eq!(connect(at(5_000), (&mut a, qp_a), (&mut b, qp_b)), 3);
        for (host, qp) in [(&a, qp_a), (&b, qp_b)] {
            let verbs = &host.verbs;
            assert_eq!(verbs.state(qp), Some(QpState::Ready), "{one:?} {other:?}");
            assert_eq!((verbs.is_stateful(qp), verbs.is_rc(qp)), (Some(true), Some(true)));
            assert_eq!(verbs.stateful, 1);
        }
        let (record_a, record_b) = (a.verbs.record(qp_a.index), b.verbs.record(qp_b.index));
        // The side that connects names the connection, gives the key and puts it away.
        let name = (PD.0, qp_a.nonce);
        assert_eq!(((record_a.pd, record_a.nonce), (record_b.pd, record_b.nonce)), (name, name));
        assert_eq!((record_a.key, record_b.key), ([0; 16], KEY));
        assert_eq!(record_b.z_clock, CLOCK);
    }
}

//= star#III-C1-auto
//= type=test
#[test]
fn hosts_that_leave_it_open_tell_their_numbers_of_connections() {
    let ((mut a, qp_a), (mut b, qp_b)) = two(Role::Auto, Role::Auto);
    a.verbs.note_stateful_elsewhere(1000);
    b.verbs.note_stateful_elsewhere(999);
    a.verbs.connect(at(0), qp_a).unwrap();
    connect(at(0), (&mut a, qp_a), (&mut b, qp_b));
    assert_eq!(a.verbs.is_stateful(qp_a), Some(false));
    assert_eq!(b.verbs.is_stateful(qp_b), Some(true));
}

#[test]
fn messages_that_are_not_expected_change_nothing() {
    let ((mut a, qp_a), (mut b, qp_b)) = two(Role::Stateless, Role::Stateless);
    a.verbs.connect(at(0), qp_a).unwrap();
    assert_eq!(a.verbs.connect(at(0), qp_a), Err(ConnectError::NotExpected));
    let offer = a.verbs.poll_message(at(0), qp_a).unwrap();
    assert_eq!(a.verbs.poll_message(at(0), qp_a), None);
    let clash = ConnectError::Roles(RolesClash(Role::Stateless));
    assert_eq!(b.verbs.handle_message(at(0), qp_b, &offer), Err(clash));
    assert_eq!(a.verbs.handle_message(at(0), qp_a, &offer), Err(ConnectError::NotExpected));
    // The same queue pair may take another.
    let mut v6 = Host::new([192, 0, 2, 3]);
    v6.verbs.place.addresses = "2001:db8::1".parse::<HostAddr>().unwrap().into();
    let qp_v6 = v6.qp(Role::Stateful);
    v6.verbs.connect(at(0), qp_v6).unwrap();
    let of_v6 = v6.verbs.poll_message(at(0), qp_v6).unwrap();
    assert_eq!(b.verbs.handle_message(at(0), qp_b, &of_v6), Err(ConnectError::NoAddress));
    let qp_f = b.qp(Role::Stateful);
    b.verbs.handle_message(at(0), qp_f, &offer).unwrap();
    let answer = b.verbs.poll_message(at(0), qp_f).unwrap();
    // An answer to somebody else.
    let other = a.qp(Role::Auto);
    a.verbs.connect(at(0), other).unwrap();
    let error = a.verbs.handle_message(at(0), other, &answer);
    assert_eq!(error, Err(ConnectError::OtherConnection));
    a.verbs.handle_message(at(0), qp_a, &answer).unwrap();
    a.engine_turn(at(0));
    let confirm = a.verbs.poll_message(at(0), qp_a).unwrap();
    let mut wrong = confirm.clone();
    wrong[15] ^= 1;
    let error = b.verbs.handle_message(at(0), qp_f, &wrong);
    assert_eq!(error, Err(ConnectError::OtherConnection));
    b.verbs.handle_message(at(0), qp_f, &confirm).unwrap();
    let again = b.verbs.handle_message(at(0), qp_f, &confirm);
    assert_eq!(again, Err(ConnectError::NotExpected));
}

#[test]
fn a_set_up_that_does_not_go_on_ends() {
    let ((mut a, qp_a), (mut b, qp_b)) = two(Role::Stateless, Role::Stateful);
    a.verbs.connect(at(0), qp_a).unwrap();
    let offer = a.verbs.poll_message(at(0), qp_a).unwrap();
    b.verbs.handle_message(at(0), qp_b, &offer).unwrap();
    a.verbs.poll(at(9_999));
    assert_eq!(a.verbs.state(qp_a), Some(QpState::Init));
    for (host, qp) in [(&mut a, qp_a), (&mut b, qp_b)] {
        host.verbs.poll(at(10_010));
        assert_eq!(host.verbs.state(qp), Some(QpState::Error));
        assert_eq!((host.verbs.poll_timeout(), host.verbs.stateful), (None, 0));
    }
    // The engine has no room.
    let ((mut a, qp_a), (mut b, qp_b)) = two(Role::Stateful, Role::Stateless);
    a.verbs.connect(at(0), qp_a).unwrap();
    let offer = a.verbs.poll_message(at(0), qp_a).unwrap();
    b.verbs.handle_message(at(0), qp_b, &offer).unwrap();
    b.engine_turn(at(0));
    let answer = b.verbs.poll_message(at(0), qp_b).unwrap();
    a.verbs.handle_message(at(0), qp_a, &answer).unwrap();
    let (status, key) = (WcStatus::GeneralErr, [0; 16]);
    a.report(at(0), &Report::Opened { qp: qp_a.index, status, key, clock: 0, valid_micros: 1 });
    assert_eq!(
        (a.verbs.state(qp_a), a.verbs.poll_message(at(0), qp_a)),
        (Some(QpState::Error), None)
    );
}

//= star#III-C1-state
//= type=test
#[test]
fn initial_state_is_told_until_it_is_acknowledged_and_not_for_ever() {
    for heard in [true, false] {
        let ((mut a, qp_a), (mut b, qp_b)) = two(Role::Stateless, Role::Stateful);
        a.verbs.connect(at(0), qp_a).unwrap();
        let offer = a.verbs.poll_message(at(0), qp_a).unwrap();
        b.verbs.handle_message(at(0), qp_b, &offer).unwrap();
        let answer = b.verbs.poll_message(at(0), qp_b).unwrap();
        a.verbs.handle_message(at(0), qp_a, &answer).unwrap();
        a.engine_turn(at(0));
        let _confirm = a.verbs.poll_message(at(0), qp_a).unwrap();
        let mut told = 0;
        for millis in (0..13_000).step_by(10) {
            a.verbs.poll(at(millis));
            a.take_posts();
            let introduced = a.others.drain(..).filter(|it| matches!(it, Post::Introduce { .. }));
            told += introduced.count();
            if heard && told == 3 {
                a.ea(qp_a, 0, 0);
                assert_eq!(a.verbs.state(qp_a), Some(QpState::Ready), "seen at once");
            }
        }
        let (state, expected) = if heard { (QpState::Ready, 3) } else { (QpState::Error, 31) };
        assert_eq!((a.verbs.state(qp_a), told), (Some(state), expected));
    }
}

fn end() -> impl Strategy<Value = End> {
    (any::<[u32; 3]>(), 1_u16.., any::<[u16; 2]>()).prop_map(|([pd, qpn, nonce], len, depths)| {
        End { pd, qpn, nonce, packet_len_max: len, depths }
    })
}

fn given() -> impl Strategy<Value = (Part, Option<Given>)> {
    let of = |(clock, key)| Given { clock: ZTime(clock), key: FrameKey::from_bytes(key) };
    prop_oneof![
        Just((Part::Of(Side::Stateful), None)),
        any::<(u64, [u8; 16])>().prop_map(move |it| (Part::Of(Side::Stateless), Some(of(it)))),
        any::<(u64, [u8; 16])>().prop_map(move |it| (Part::Rc, Some(of(it)))),
    ]
}

fn terms() -> impl Strategy<Value = Terms> {
    let role = prop::sample::select(vec![Role::Stateful, Role::Stateless, Role::Auto, Role::Rc]);
    let v4 = (1_u8..200).prop_map(|it| HostAddr::from([10, 0, 0, it]));
    let v6 = (1_u16..)
        .prop_map(|it| HostAddr::from_octets((0x2001_u128 << 112 | u128::from(it)).to_be_bytes()));
    let addresses = prop_oneof![
        v4.clone().prop_map(LocalAddresses::from),
        v6.clone().prop_map(LocalAddresses::from),
        (v4.clone(), v6).prop_map(|(v4, v6)| {
            let mut both = LocalAddresses::from(v4);
            both.insert(v6);
            both
        }),
    ];
    prop_oneof![
        (role, addresses, end(), any::<(u32, u32)>()).prop_map(|(role, addresses, end, load)| {
            let load = Load { connections: load.0, threshold: load.1 };
            Terms::Offer(Offer { role, addresses, end, load })
        }),
        (v4, end(), any::<(u32, u32)>(), given()).prop_map(|(address, end, answers, given)| {
            let (part, given) = given;
            Terms::Answer(Answer { address, end, answers, part, given })
        }),
        (any::<(u32, u32)>(), given()).prop_map(|(confirms, (part, given))| Terms::Confirm(
            Confirm { confirms, part, given }
        )),
    ]
}

proptest! {
    #[test]
    fn messages_say_what_was_put_into_them(terms in terms()) {
        prop_assert_eq!(Terms::parse(&terms.to_octets()), Ok(terms));
    }

    /// Any octets are a message that is written so and not otherwise, or an error.
    #[test]
    fn any_octets_are_one_message_or_none(
        terms in terms(),
        (place, with) in any::<(prop::sample::Index, u8)>(),
        cut in any::<Option<prop::sample::Index>>(),
        noise in prop::collection::vec(any::<u8>(), 0..90),
    ) {
        let mut octets = terms.to_octets();
        let at = place.index(octets.len());
        octets[at] = with;
        if let Some(cut) = cut {
            octets.truncate(cut.index(octets.len()));
        }
        for octets in [octets, noise] {
            if let Ok(terms) = Terms::parse(&octets) {
                prop_assert_eq!(terms.to_octets(), octets);
            }
        }
    }
}
