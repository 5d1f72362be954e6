//! Refusals of malformed messages, by the name of the field and its value.

use rma_keys::{
    limits::MESSAGE_LEN_MAX,
    message::{malformed::Malformed, number, reply::Reply, request::Request},
};

use crate::messages::vectors;

/// Decodes as what it is meant to be; what is wrong, if anything.
fn decode(is_request: bool, octets: &[u8]) -> Result<(), Malformed> {
    if is_request { Request::decode(octets).map(drop) } else { Reply::decode(octets).map(drop) }
}

#[test]
fn every_truncation_is_refused_and_says_which_field_is_cut_off() {
    for (name, is_request, octets) in vectors::messages() {
        assert_eq!(decode(is_request, &[]), Err(Malformed::Length { len: 0 }));
        for len in 1..octets.len() {
            let error = decode(is_request, &octets[..len]).expect_err("it is cut off");
            let Malformed::Truncated { field, at } = error else { panic!("{name} {len}: {error}") };
            assert_eq!(at, len, "{name}");
            assert!(!field.name.is_empty() && error.to_string().contains(field.name));
        }
    }
}

#[test]
fn whatever_follows_a_message_is_refused() {
    for (_, is_request, octets) in vectors::messages() {
        for more in [&[0][..], &[0xff], &octets] {
            let error = decode(is_request, &[&octets, more].concat());
            assert_eq!(error, Err(Malformed::Trailing { len: more.len() }));
        }
    }
}

#[test]
fn every_octet_that_is_changed_is_refused_or_read_and_nothing_panics() {
    let (mut refused, mut read) = (0, 0);
    for (_, is_request, octets) in vectors::messages() {
        for at in 0..octets.len() {
            for bit in 0..8 {
                let mut changed = octets.clone();
                changed[at] ^= 1 << bit;
                match decode(is_request, &changed) {
                    Ok(()) => read += 1,
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 1000 && read > 1000, "{refused} refused, {read} read");
}

#[test]
fn another_version_is_refused_whatever_follows() {
    for version in [0, 2, 1 << 32, u64::MAX] {
        // The octets behind it are no field of this version.
        let wide = [&[0x1b][..], &version.to_be_bytes()].concat();
        let octets = [&[0xa2, 0][..], &wide, &[1, 9]].concat();
        assert_eq!(number(&octets), None);
        assert_eq!(Request::decode(&octets), Err(Malformed::Version { version }));
        assert_eq!(Reply::decode(&octets), Err(Malformed::Version { version }));
    }
    assert_eq!(Request::decode(&[0xa1, 2, 7]).unwrap_err().to_string(), "version is missing");
    assert_eq!(Reply::decode(&[0xa0]).unwrap_err().to_string(), "version is missing");
}

/// A request of which one part can be something else.
#[derive(Clone, Copy)]
struct Parts<'a> {
    number: &'a [u8],
    initiators: &'a [u8],
    pid: &'a [u8],
    name: &'a [u8],
    ops: &'a [u8],
    have: &'a [u8],
    more: &'a [u8],
}

impl Parts<'_> {
    fn request(self) -> Vec<u8> {
        let mut octets = vec![if self.more.is_empty() { 0xa5 } else { 0xa6 }, 0, 1];
        let pid = [&[3], self.pid].concat();
        for part in [&[1], self.number, &[2], self.initiators, &pid, &[4, 0x81, 0xa3, 0], self.name]
        {
            octets.extend(part);
        }
        for part in [&[1], self.ops, &[2], self.have, self.more] {
            octets.extend(part);
        }
        octets
    }
}

const V4: &[u8] = &[0x81, 0x44, 192, 0, 2, 1];
const GOOD: Parts<'_> = Parts {
    number: &[9],
    initiators: V4,
    pid: &[7],
    name: b"\x62kv",
    ops: &[0x81, 1],
    have: b"\xa2\x00\x48lifelife\x01\x05",
    more: &[],
};

#[test]
fn every_field_out_of_range_is_refused_by_name_and_value() {
    Request::decode(&GOOD.request()).expect("it is whole");
    let name_256 = [&[0x79, 1, 0][..], &[b'x'; 256]].concat();
    let regions_33 = {
        let mut octets = vec![0xa5, 0, 1, 1, 9, 2];
        octets.extend(V4);
        octets.extend([3, 7, 4, 0x98, 33]);
        octets
    };
    let v6 = |octets: &str| {
        let address: std::net::Ipv6Addr = octets.parse().expect("an address");
        [&[0x81, 0x50][..], &address.octets()].concat()
    };
    let (mapped, nobody) = (v6("::ffff:192.0.2.1"), v6("::"));
    let cases: &[(Parts<'_>, &str)] = &[
        (Parts { number: b"\x1b\0\0\0\x01\0\0\0\0", ..GOOD }, "number is 4294967296,"),
        (Parts { number: &[0x20], ..GOOD }, "number is a negative number,"),
        (Parts { number: b"\x41\x09", ..GOOD }, "number is octets,"),
        (Parts { initiators: &[0x80], ..GOOD }, "initiators is 0, and should be 1 or 2 addresses"),
        (Parts { initiators: &[0x83], ..GOOD }, "initiators is 3,"),
        (Parts { initiators: &[0x9f, 0xff], ..GOOD }, "initiators is of indefinite length,"),
        (Parts { initiators: &[0x81, 0x43, 1, 2, 3], ..GOOD }, "initiators[0].address is 3,"),
        (Parts { initiators: &[0x81, 0x45, 1, 2, 3, 4, 5], ..GOOD }, "initiators[0].address is 5,"),
        (
            Parts { initiators: &[0x81, 0x44, 0, 0, 0, 0], ..GOOD },
            "initiators[0].address is 0.0.0.0",
        ),
        (Parts { initiators: &[0x81, 0x44, 224, 0, 0, 1], ..GOOD }, "address is 224.0.0.1"),
        (Parts { initiators: &mapped, ..GOOD }, "initiators[0].address is 16,"),
        (Parts { initiators: &nobody, ..GOOD }, "address is ::,"),
        (
            Parts { initiators: &[0x82, 0x44, 10, 0, 0, 1, 0x44, 10, 0, 0, 2], ..GOOD },
            "initiators: 10.0.0.2 is the second of IPv4",
        ),
        (Parts { pid: b"\x1b\0\0\0\x01\0\0\0\0", ..GOOD }, "pid is 4294967296,"),
        (Parts { pid: &[0x20], ..GOOD }, "pid is a negative number,"),
        (Parts { pid: b"\x617", ..GOOD }, "pid is a text,"),
        (Parts { pid: &[0xf9, 0, 0], ..GOOD }, "pid is a fraction,"),
        (Parts { name: &[0x60], ..GOOD }, "regions[0].name is 0,"),
        (Parts { name: &name_256, ..GOOD }, "regions[0].name is 256,"),
        (Parts { name: b"\x7b\0\0\0\x01\0\0\0\0", ..GOOD }, "regions[0].name is 4294967296,"),
        (Parts { name: b"\x65a/../", ..GOOD }, "regions[0].name: segment \"..\" at octet 2"),
        (Parts { name: b"\x62KV", ..GOOD }, "regions[0].name: character 'K' at octet 0"),
        (Parts { name: b"\x62\xc3\x28", ..GOOD }, "regions[0].name is not well-formed,"),
        (Parts { name: b"\x42kv", ..GOOD }, "regions[0].name is octets,"),
        (Parts { ops: &[0x80], ..GOOD }, "regions[0].ops is 0,"),
        (Parts { ops: &[0x89], ..GOOD }, "regions[0].ops is 9,"),
        (Parts { ops: &[0x81, 0], ..GOOD }, "regions[0].ops is 0,"),
        (Parts { ops: &[0x81, 9], ..GOOD }, "regions[0].ops is 9,"),
        (Parts { ops: &[0x82, 1, 1], ..GOOD }, "regions[0].ops: key 1 comes after key 1"),
        (Parts { ops: &[0x82, 2, 1], ..GOOD }, "regions[0].ops: key 1 comes after key 2"),
        (Parts { ops: b"\x9b\0\0\0\x01\0\0\0\0", ..GOOD }, "regions[0].ops is 4294967296,"),
        (Parts { have: &[0xf6], ..GOOD }, "regions[0].have is null,"),
        (Parts { have: &[0xa0], ..GOOD }, "regions[0].have.life is missing"),
        (Parts { have: b"\xa1\x00\x48lifelife", ..GOOD }, "regions[0].have.number is missing"),
        (Parts { have: b"\xa1\x00\x47lifelif", ..GOOD }, "regions[0].have.life is 7,"),
        (Parts { have: b"\xbb\0\0\0\x01\0\0\0\0", ..GOOD }, "regions[0].have is 4294967296,"),
        (Parts { more: &[4, 0], ..GOOD }, "message: key 4 comes after key 4"),
        (Parts { more: &[5, 0xff], ..GOOD }, "message is no value,"),
        (Parts { more: &[5, 0x1c], ..GOOD }, "message is not well-formed,"),
    ];
    for (parts, says) in cases {
        let error = Request::decode(&parts.request()).expect_err(says).to_string();
        assert!(error.starts_with(says) || error.contains(says), "{error}\n{says}");
    }
    let error = Request::decode(&regions_33).unwrap_err().to_string();
    assert!(error.contains("regions is 33,"), "{error}");
    let long = vec![0; MESSAGE_LEN_MAX + 1];
    assert_eq!(Request::decode(&long), Err(Malformed::Length { len: MESSAGE_LEN_MAX + 1 }));
}

#[test]
fn a_field_that_must_be_there_is_missed_by_name() {
    // Fields 1 to 4 of a request, each left out once.
    let regions = b"\x04\x81\xa2\x00\x62kv\x01\x81\x01".to_vec();
    let fields = [vec![1, 9], [&[2][..], V4].concat(), vec![3, 7], regions];
    for (left_out, name) in ["number", "initiators", "pid", "regions"].into_iter().enumerate() {
        let mut octets = vec![0xa4, 0, 1];
        octets.extend(fields.iter().enumerate().filter(|it| it.0 != left_out).flat_map(|it| it.1));
        let error = Request::decode(&octets).unwrap_err().to_string();
        assert_eq!(error, format!("{name} is missing"));
    }
    assert_eq!(Reply::decode(&[0xa2, 0, 1, 1, 9]).unwrap_err().to_string(), "answers is missing");
    // Answers are always to a request that was read.
    let answers = [0xa2, 0, 1, 2, 0x81, 0xa1, 0, 2];
    assert_eq!(Reply::decode(&answers).unwrap_err().to_string(), "number is missing");
}

#[test]
fn unknown_fields_are_skipped_however_they_are_nested() {
    let nested: Vec<u8> = [vec![0x18, 99], vec![0x81; 1000], vec![0xf6]].concat();
    for more in [
        &[5, 0][..],
        b"\x18\x63\x65hello",
        b"\x18\x63\xa1\x61k\x83\x01\x20\xf5",
        b"\x19\x03\xe8\xc1\x1a\x00\x00\x00\x01",
        &nested,
    ] {
        let parts = Parts { more, ..GOOD };
        assert_eq!(
            Request::decode(&parts.request()),
            Request::decode(&GOOD.request()),
            "{more:x?}"
        );
    }
    // In the map of a region, and of an epoch, as well.
    let have = b"\xa3\x00\x48lifelife\x01\x05\x02\x81\xf6";
    let parts = Parts { have, ..GOOD };
    assert_eq!(Request::decode(&parts.request()), Request::decode(&GOOD.request()));
}

#[test]
fn an_unknown_field_that_says_to_be_huge_is_refused() {
    for more in [
        &b"\x05\x9b\0\0\0\x01\0\0\0\0"[..],
        b"\x05\xbb\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x05\x5b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x05\x7b\0\0\0\x01\0\0\0\0",
    ] {
        Request::decode(&Parts { more, ..GOOD }.request()).expect_err("it cannot be that long");
    }
    // More fields than any version has.
    let octets = [&[0xb8, 65, 0, 1][..], &GOOD.request()[3..]].concat();
    let error = Request::decode(&octets).unwrap_err().to_string();
    assert_eq!(error, "message is 65, and should be a map of at most 64 fields");
}

/// A reply with one answer, or with a refusal.
fn reply(field: u8, item: &[u8]) -> Vec<u8> {
    let list: &[u8] = if field == 2 { &[0x81] } else { &[] };
    [&[0xa3, 0, 1, 1, 9, field], list, item].concat()
}

#[test]
fn fields_of_replies_out_of_range_are_refused_and_keys_are_not_shown() {
    const PRESENT: &[u8] =
        b"\x04\xa4\x00\x48lifelife\x01\x01\x02\x00\x03\xa1\x01\x50KEYKEYKEYKEYKEYK";
    let granted = |present: &[u8]| {
        let fields = [b"\xa6\x00\x00\x01\x44\xc0\0\x02\x02\x02\x05\x03\x10", present, b"\x05\x00"];
        reply(2, &fields.concat())
    };
    Reply::decode(&granted(PRESENT)).expect("it is whole");
    let changed = |from: &[u8], to: &[u8]| {
        let at = PRESENT.windows(from.len()).position(|it| it == from).expect("it is there");
        granted(&[&PRESENT[..at], to, &PRESENT[at + from.len()..]].concat())
    };
    let day = b"\x02\x1a\x05\x26\x5c\x01";
    // Announced keys that would lead a client back, or into another life.
    let with_next = |life: &[u8; 8], number: u8| {
        let next: &[&[u8]] = &[b"\xa4\x00\x48", life, &[1, number], &PRESENT[14..]];
        let before = &granted(PRESENT)[8..];
        let fields: &[&[u8]] = &[&[0xa7], before, &[6], &next.concat()];
        reply(2, &fields.concat())
    };
    Reply::decode(&with_next(b"lifelife", 2)).expect("it comes after the present one");
    for (octets, says) in [
        (reply(2, &[0xa1, 0, 4]), "answers[0].kind is 4,"),
        (reply(2, &[0xa0]), "answers[0].kind is missing"),
        (reply(2, &[0xa1, 0, 1]), "answers[0].lifetime-ms is missing"),
        (reply(2, &[0xa1, 0, 0]), "answers[0].responder is missing"),
        (reply(2, b"\xa2\x00\x01\x05\x1a\x05\x26\x5c\x01"), "refresh-ms is 86400001,"),
        (changed(b"\x02\x00", day), "answers[0].present.lifetime-ms is 86400001,"),
        (changed(b"\x01\x50KEYKEYKEYKEYKEYK", b"\x01\x4fKEYKEYKEYKEYKEY"), "present.keys is 15,"),
        (changed(b"\xa1\x01\x50KEYKEYKEYKEYKEYK", b"\xa0"), "answers[0].present.keys is missing"),
        (changed(b"\xa1\x01\x50", b"\xa1\x09\x50"), "answers[0].present.keys is missing"),
        (changed(b"\x50KEY", b"\x70KEY"), "answers[0].present.keys is a text,"),
        (with_next(b"lifelife", 1), "answers[0].next.number is 1,"),
        (with_next(b"lifelife", 0), "answers[0].next.number is 0,"),
        (with_next(b"otherone", 2), "answers[0].next.number is 2,"),
        (reply(3, &[0xa1, 0, 0]), "refused.reason is 0,"),
        (reply(3, &[0xa1, 0, 5]), "refused.reason is 5,"),
        (reply(3, &[0xa1, 0, 1]), "refused.retry-ms is missing"),
        (reply(3, b"\xa2\x00\x01\x01\x19\xea\x61"), "refused.retry-ms is 60001,"),
        (reply(3, &[&b"\xa2\x00\x02\x02\x78\x41"[..], &[b'f'; 65]].concat()), "field is 65,"),
        (reply(3, b"\xa2\x00\x04\x03\x1b\xff\xff\xff\xff\xff\xff\xff\xff"), "refused.seen is 184"),
        (reply(2, &[]), "answers[0].fields: cut off"),
        (vec![0xa3, 0, 1, 1, 9, 2, 0x80], "answers is 0,"),
    ] {
        let error = Reply::decode(&octets).expect_err(says);
        assert!(error.to_string().contains(says), "{error}\n{says}");
        assert!(!format!("{error} {error:?}").contains("KEY"), "{error}");
    }
}
