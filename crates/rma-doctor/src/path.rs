//! The path to another host: the largest packet that arrives, and what a step on the way means.

use crate::{
    finding::{Class, Finding, State},
    text::quoted,
};

/// The packets that were found to arrive, and not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Largest {
    /// The longest that arrived, in bytes; none if none did.
    pub arrives: Option<u32>,
    /// The shortest that did not; none if all did.
    pub vanishes: Option<u32>,
}

/// The shortest difference that is looked for, in bytes: an MTU is told to four.
const PRECISION: u32 = 4;

/// The least MTU with which an interface has IPv6, in bytes.
const IPV6_MTU: u32 = 1280;

/// Looks for the largest packet of at least `least` and at most `most` bytes that arrives. `probe`
/// sends one of a length, and says whether it came, or none once there is no more time.
pub fn largest(least: u32, most: u32, mut probe: impl FnMut(u32) -> Option<bool>) -> Largest {
    let mut found = Largest { arrives: None, vanishes: None };
    for len in [most, least] {
        match probe(len) {
            Some(true) => {
                found.arrives = Some(len);
                break;
            }
            Some(false) => found.vanishes = Some(len),
            // Of a long one alone that vanished it is not known whether any arrives.
            None => return Largest { arrives: None, vanishes: None },
        }
    }
    while let Largest { arrives: Some(arrives), vanishes: Some(vanishes) } = found
        && vanishes.saturating_sub(arrives) > PRECISION
    {
        // What most networks carry is looked at first.
        let known = [1500, 1450].into_iter().flat_map(|it| [it, it + 1]);
        let known = known.into_iter().find(|it| (arrives + 1..vanishes).contains(it));
        let len = known.unwrap_or(arrives + (vanishes - arrives) / 2);
        match probe(len) {
            Some(true) => found.arrives = Some(len),
            Some(false) => found.vanishes = Some(len),
            None => break,
        }
    }
    found
}

/// A step on the way to a host, with the check's name, and the host.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The check.
    pub id: &'a str,
    /// The interface of the way, if it is known.
    pub interface: Option<&'a str>,
}

impl Step<'_> {
    /// It is as it should be.
    #[must_use]
    pub fn ok(self, found: impl Into<String>, why: impl Into<String>) -> Finding {
        self.finding(State::Ok, found.into(), why.into(), None)
    }

    /// It is to be mended by a person.
    #[must_use]
    pub fn mend(self, found: impl Into<String>, why: impl Into<String>, command: &str) -> Finding {
        self.finding(State::Mend, found.into(), why.into(), Some(command.to_owned()))
    }

    /// It was not seen.
    #[must_use]
    pub fn unknown(self, why: impl Into<String>) -> Finding {
        self.finding(State::Unknown, "not seen".to_owned(), why.into(), None)
    }

    fn finding(self, state: State, found: String, why: String, command: Option<String>) -> Finding {
        let (id, interface) = (self.id.to_owned(), self.interface.map(str::to_owned));
        let (wanted, class, settings) = (None, Class::Person, Vec::new());
        Finding { id, interface, state, found, wanted, why, command, class, settings }
    }

    /// The largest packet of at most `device_mtu` bytes that arrived from `peer`.
    #[must_use]
    pub fn of_largest(self, peer: &str, device_mtu: u32, found: Largest) -> Finding {
        let words = quoted(self.interface.unwrap_or("INTERFACE"));
        match found {
            Largest { arrives: Some(arrives), vanishes: None } => self.ok(
                format!("{arrives} B"),
                "packets as long as 1RMA sends them there arrive",
            ),
            // Below that IPv6 is gone, too; what lies far apart was not looked at for long enough.
            Largest { arrives: Some(arrives), vanishes: Some(vanishes) }
                if vanishes.saturating_sub(arrives) > PRECISION || arrives < IPV6_MTU =>
            {
                self.mend(
                    format!(
                        "packets of {arrives} B arrive from {peer}, and of {vanishes} B do not"
                    ),
                    "something between here and there drops what is longer without a word; what the path carries lies \
                     between the two, and there was no time to find it, or it is too little for IPv6",
                    &format!("tracepath -n {}", quoted(peer)),
                )
            }
            Largest { arrives: Some(arrives), vanishes: Some(vanishes) } => self.mend(
                format!("packets of {arrives} B arrive from {peer}, and of {vanishes} B do not"),
                format!(
                    "both ends have an MTU of {device_mtu} at least, and something between them drops what is longer \
                     without a word: the first large ops end with TIMEOUT, then all take more frames; ask who runs the \
                     switch, or set what arrives"
                ),
                &format!("ip link set dev {words} mtu {arrives}"),
            ),
            Largest { arrives: None, vanishes: Some(_) } => self.mend(
                "no packet of any length arrives",
                "small ones did a moment ago: frames are lost, or the host there stands still",
                &format!("tracepath -n {peer}"),
            ),
            Largest { arrives: None, vanishes: None } => self.unknown("there was no time for it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_packet_is_found_to_four_bytes_in_few_probes() {
        for limit in [576, 1279, 1280, 1281, 1398, 1420, 1450, 1476, 1500, 3399] {
            let mut probes = 0;
            let found = largest(576, 3400, |len| {
                probes += 1;
                Some(len <= limit)
            });
            let Largest { arrives: Some(arrives), vanishes: Some(vanishes) } = found else {
                panic!("{found:?}");
            };
            assert!(arrives <= limit && limit < vanishes && vanishes - arrives <= 4, "{limit}");
            assert!(probes <= 14, "{probes}");
        }
    }

    #[test]
    fn all_that_arrives_is_asked_once_and_none_twice_and_the_end_of_time_is_the_end() {
        let both = |arrives, vanishes| Largest { arrives, vanishes };
        assert_eq!(largest(576, 1500, |_| Some(true)), both(Some(1500), None));
        assert_eq!(largest(576, 1500, |_| Some(false)), both(None, Some(576)));
        assert_eq!(largest(576, 1500, |_| None), both(None, None));
        assert_eq!(largest(576, 1500, |len| (len == 1500).then_some(false)), both(None, None));
        let mut probes = 0;
        let found = largest(576, 9000, |len| {
            probes += 1;
            (probes < 3).then_some(len < 1000)
        });
        assert_eq!(found, both(Some(576), Some(9000)));
        assert_eq!(largest(u32::MAX, 0, |_| Some(false)), both(None, Some(u32::MAX)));
    }

    #[test]
    fn a_narrow_path_is_told_with_its_size_and_the_command() {
        let step = Step { id: "peer_frame", interface: Some("a b") };
        let found = Largest { arrives: Some(1472), vanishes: Some(1473) };
        let finding = step.of_largest("192.0.2.2", 9000, found);
        assert_eq!(finding.state, State::Mend);
        assert_eq!(finding.command.unwrap(), "ip link set dev 'a b' mtu 1472");
        assert!(finding.found.contains("1472") && finding.why.contains("9000"));
        for (arrives, vanishes) in [(576, 9000), (1000, 1002)] {
            let found = Largest { arrives: Some(arrives), vanishes: Some(vanishes) };
            let command = step.of_largest("192.0.2.2", 9000, found).command.unwrap();
            assert_eq!(command, "tracepath -n 192.0.2.2", "no MTU that nobody has found");
        }
    }
}
