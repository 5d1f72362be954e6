//! Whatever is written is read again, and whatever is read is what was written, but for fields that
//! are not known.

use std::{net::IpAddr, time::Duration};

use proptest::{collection::vec, option, prelude::*};
use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    op::OpType,
    region::RegionId,
};
use rma_keys::{
    epoch::{Epoch, Life},
    limits::MESSAGE_LEN_MAX,
    message::{
        frame, number,
        reply::{Answer, EpochKeys, Granted, Refusal, Reply},
        request::{Request, Wanted},
    },
    name::RegionName,
    ops::OpSet,
    secret::GrantedKey,
    time::WallTime,
};

fn address() -> impl Strategy<Value = HostAddr> {
    let is_hosts = |it: &HostAddr| !it.ip().is_unspecified() && !it.ip().is_multicast();
    any::<IpAddr>().prop_map(HostAddr::from).prop_filter("an address of a host", is_hosts)
}

fn initiators() -> impl Strategy<Value = LocalAddresses> {
    (address(), option::of(address())).prop_map(|(one, other)| {
        let mut addresses = LocalAddresses::from(one);
        other.map(|other| addresses.insert(other));
        addresses
    })
}

fn name() -> impl Strategy<Value = RegionName> {
    "[a-z0-9_-]{1,40}(/[a-z0-9._-]{1,40}x){0,4}".prop_map(|it| it.parse().expect("a name"))
}

fn ops() -> impl Strategy<Value = OpSet> {
    (1_u8..=255).prop_map(|bits| {
        let is_in = |op_type: &OpType| bits >> (*op_type as u8 - 1) & 1 == 1;
        OpType::ALL.into_iter().filter(is_in).collect()
    })
}

fn epoch() -> impl Strategy<Value = Epoch> {
    any::<([u8; 8], u64)>().prop_map(|(life, number)| Epoch { life: Life(life), number })
}

fn millis() -> impl Strategy<Value = Duration> {
    (0_u64..=86_400_000).prop_map(Duration::from_millis)
}

fn request() -> impl Strategy<Value = Request> {
    let wanted = (name(), ops(), option::of(epoch()));
    let wanted = wanted.prop_map(|(name, ops, have)| Wanted { name, ops, have });
    (initiators(), any::<u32>(), vec(wanted, 1..=32))
        .prop_map(|(initiators, pid, regions)| Request { initiators, pid: Pid(pid), regions })
}

fn keys(ops: OpSet) -> impl Strategy<Value = EpochKeys> {
    let keys = vec(any::<[u8; 16]>(), ops.len());
    (epoch(), millis(), keys).prop_map(move |(epoch, lifetime, keys)| {
        let keys = keys.iter().map(GrantedKey::from_octets);
        EpochKeys { epoch, lifetime, keys: ops.iter().zip(keys).collect() }
    })
}

fn granted() -> impl Strategy<Value = Answer> {
    let keys = ops().prop_flat_map(|ops| (keys(ops), option::of(keys(ops))));
    (address(), any::<u32>(), any::<u64>(), keys, millis()).prop_map(
        |(responder, region, region_len, (mut present, mut next), refresh)| {
            let region = RegionId::from_bits(region);
            if let Some(next) = &mut next {
                // It comes after the present one.
                present.epoch.number = present.epoch.number.min(u64::MAX - 1);
                let number = next.epoch.number.max(present.epoch.number + 1);
                next.epoch = Epoch { number, ..present.epoch };
            }
            Answer::Granted(Granted { responder, region, region_len, present, refresh, next })
        },
    )
}

fn answer() -> impl Strategy<Value = Answer> {
    let current =
        (millis(), millis()).prop_map(|(lifetime, refresh)| Answer::Current { lifetime, refresh });
    prop_oneof![
        4 => granted(),
        1 => current,
        1 => (0..2).prop_map(|it| if it == 0 { Answer::Denied } else { Answer::NoAddressOfFamily }),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let seen = |it: u32| WallTime::from_unix_millis(i64::from(it) * 1000);
    prop_oneof![
        8 => vec(answer(), 1..=32).prop_map(Reply::Answers),
        1 => (0_u64..=60_000)
            .prop_map(|it| Refusal::NotNow { retry: Duration::from_millis(it) })
            .prop_map(Reply::Refused),
        1 => "[a-z.\\[\\]]{0,64}"
            .prop_map(|it| Reply::Refused(Refusal::Wrong { field: it.into() })),
        1 => any::<u32>()
            .prop_map(move |it| Reply::Refused(Refusal::CertificateEnded { seen: seen(it) })),
    ]
}

proptest! {
    #[test]
    fn requests_come_back(request in request(), of: u32) {
        let octets = request.encode(of);
        prop_assert_eq!(number(&octets), Some(of));
        prop_assert!(octets.len() <= MESSAGE_LEN_MAX);
        prop_assert_eq!(frame::message_len(frame::length(octets.len())), Ok(octets.len()));
        prop_assert_eq!(Request::decode(&octets), Ok(request));
    }

    #[test]
    fn replies_come_back(reply in reply(), of: u32, is_read: bool) {
        let of = (is_read || matches!(reply, Reply::Answers(_))).then_some(of);
        let octets = reply.encode(of);
        prop_assert_eq!(number(&octets), of);
        prop_assert!(octets.len() <= MESSAGE_LEN_MAX);
        prop_assert_eq!(Reply::decode(&octets), Ok(reply));
    }

    #[test]
    fn messages_survive_being_read_written_and_read_again(octets in vec(any::<u8>(), 0..200), seed in reply()) {
        // Noise, and a reply with noise in it.
        let mut damaged = seed.encode(Some(9)).to_vec();
        for (at, octet) in octets.iter().enumerate().step_by(16) {
            let place = (usize::from(*octet) * 64 + at) % damaged.len();
            damaged[place] = octets[(at + 1) % octets.len()];
        }
        for octets in [&octets, &damaged] {
            if let Ok(reply) = Reply::decode(octets) {
                prop_assert_eq!(Reply::decode(&reply.encode(Some(u32::MAX))), Ok(reply));
            }
            if let Ok(request) = Request::decode(octets) {
                prop_assert_eq!(Request::decode(&request.encode(u32::MAX)), Ok(request));
            }
        }
    }
}

#[test]
fn the_longest_reply_and_the_longest_request_fit_a_message() {
    let all: OpSet = OpType::ALL.into_iter().collect();
    let keys = |number| EpochKeys {
        epoch: Epoch { life: Life([0xff; 8]), number },
        lifetime: Duration::from_millis(86_400_000),
        keys: all.iter().map(|it| (it, GrantedKey::from_octets(&[0xff; 16]))).collect(),
    };
    let granted = || {
        Answer::Granted(Granted {
            responder: "2001:db8::1".parse().expect("an address"),
            region: RegionId::from_bits(u32::MAX),
            region_len: u64::MAX,
            present: keys(u64::MAX - 1),
            refresh: Duration::from_millis(86_400_000),
            next: Some(keys(u64::MAX)),
        })
    };
    let reply = Reply::Answers((0..32).map(|_| granted()).collect());
    assert_eq!(Reply::decode(&reply.encode(Some(u32::MAX))), Ok(reply));
    let wanted = || Wanted {
        name: "x".repeat(255).parse().expect("a name"),
        ops: all,
        have: Some(Epoch { life: Life([0xff; 8]), number: u64::MAX }),
    };
    let mut initiators = LocalAddresses::from(HostAddr::from([192, 0, 2, 1]));
    initiators.insert("2001:db8::1".parse().expect("an address"));
    let regions = (0..32).map(|_| wanted()).collect();
    let request = Request { initiators, pid: Pid(u32::MAX), regions };
    assert_eq!(Request::decode(&request.encode(u32::MAX)), Ok(request));
}
