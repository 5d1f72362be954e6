//! Answers of the families `ethtool` and `netdev`, and of the program `ethtool` where the kernel
//! tells nothing over netlink.

use std::io;

use rustix::io::Errno;

use super::output;
use crate::{
    genl::{Attribute, Attributes, Generic, Reply},
    snapshot::{
        Channels, Coalescing, Features, Interface, Pause, Rings, RssFields, Seen, XdpOffer,
    },
};

const ETHTOOL: &str = "ethtool";
const NETDEV: &str = "netdev";

/// Numbers from
/// <https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/ethtool_netlink_generated.h>.
mod command {
    pub(super) const LINKMODES: u8 = 4;
    pub(super) const FEATURES: u8 = 11;
    pub(super) const RINGS: u8 = 15;
    pub(super) const CHANNELS: u8 = 17;
    pub(super) const COALESCE: u8 = 19;
    pub(super) const PAUSE: u8 = 21;
    pub(super) const EEE: u8 = 23;
    pub(super) const RSS: u8 = 38;
    /// `NETDEV_CMD_DEV_GET`, from
    /// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/netdev.h>.
    pub(super) const DEV: u8 = 1;
}

/// The fields of a hash, by `RXH_*`: bit and letter of `ethtool -N`.
const FIELDS: [(u32, char); 4] = [(4, 's'), (5, 'd'), (6, 'f'), (7, 'n')];

pub(super) fn look(interfaces: &mut [Interface]) {
    let mut generic = Generic::open();
    for interface in interfaces {
        let index = interface.link.get().map(|it| it.index);
        match (&mut generic, index) {
            (Ok(generic), Ok(index)) => Asked { generic, index }.all(interface),
            (Err(error), _) => fail(interface, &format!("no socket of generic netlink: {error}")),
            (_, Err(why)) => fail(interface, &why.0),
        }
    }
}

fn fail(interface: &mut Interface, why: &str) {
    interface.xdp = Seen::unseen(why);
    interface.features = Seen::unseen(why);
    interface.rings = Seen::unseen(why);
    interface.channels = Seen::unseen(why);
    interface.coalescing = Seen::unseen(why);
    interface.rss_table = Seen::unseen(why);
    interface.rss_fields = Seen::unseen(why);
    interface.ntuple = Seen::unseen(why);
    interface.pause = Seen::unseen(why);
    interface.eee = Seen::unseen(why);
    interface.half_duplex = Seen::unseen(why);
    interface.speed = Seen::unseen(why);
}

/// Asks about one interface.
struct Asked<'a> {
    generic: &'a mut Generic,
    index: u32,
}

impl Asked<'_> {
    fn all(&mut self, interface: &mut Interface) {
        interface.xdp = self.netdev().into();
        let features = self.ask(command::FEATURES, to_features);
        interface.features = features.map(Option::unwrap_or_default).into();
        interface.rings = self.ask(command::RINGS, to_rings).into();
        interface.channels = self.ask(command::CHANNELS, to_channels).into();
        interface.coalescing = self.ask(command::COALESCE, to_coalescing).into();
        interface.pause =
            self.ask(command::PAUSE, |it| Pause { rx: flag(it, 3), tx: flag(it, 4) }).into();
        interface.eee = self.ask(command::EEE, |it| flag(it, 5)).into();
        let modes = self.ask(command::LINKMODES, |it| (u8_of(it, 6), u32_of(it, 5)));
        // 255 and all ones: unknown.
        let duplex = |it: &(Option<u8>, _)| it.0.filter(|it| *it < 2).map(|it| it == 0);
        let speed = |it: &(_, Option<u32>)| it.1.filter(|it| *it != u32::MAX && *it != 0);
        interface.half_duplex = modes.as_ref().map(|it| it.as_ref().and_then(duplex)).into();
        interface.speed = modes.as_ref().map(|it| it.as_ref().and_then(speed)).into();
        let rss = self.ask(command::RSS, Clone::clone);
        let table = rss.as_ref().map(|it| it.as_ref().and_then(|it| it.get(4)).map(to_table));
        interface.rss_table = table.into();
        let fields = rss.map(|it| it.and_then(|it| to_fields(&it)));
        interface.rss_fields = fields.into();
        interface.ntuple = Seen::Value(None);
    }

    /// An answer of `ethtool`: `None` if the driver has nothing of that.
    fn ask<T>(&mut self, command: u8, read: impl FnOnce(&Reply) -> T) -> io::Result<Option<T>> {
        let header = Attributes::default().u32(1, self.index);
        match self.generic.ask(ETHTOOL, command, &Attributes::default().nested(1, &header)) {
            Ok(replies) => Ok(replies.first().map(read)),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(named(ETHTOOL, error)),
        }
    }

    fn netdev(&mut self) -> io::Result<XdpOffer> {
        let question = Attributes::default().u32(1, self.index);
        let replies = self.generic.ask(NETDEV, command::DEV, &question);
        let replies = replies.map_err(|error| named(NETDEV, error))?;
        let reply = replies.first().cloned().unwrap_or_default();
        let offer = reply.get(3).and_then(Attribute::u64).unwrap_or_default();
        let has = |bit: u32| offer & 1 << bit != 0;
        Ok(XdpOffer {
            basic: has(0),
            redirect: has(1),
            zero_copy: has(3),
            multi_buffer: has(5),
            // Linux 6.3 to 6.5 do not tell: there packets lie in one.
            zero_copy_segments: u32_of(&reply, 4).unwrap_or(1),
        })
    }
}

fn named(family: &str, error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound {
        return io::Error::other(format!("the kernel lacks the netlink family `{family}`"));
    }
    io::Error::new(error.kind(), format!("netlink family `{family}`: {error}"))
}

fn u8_of(reply: &Reply, kind: u16) -> Option<u8> {
    reply.get(kind)?.u8()
}

fn u32_of(reply: &Reply, kind: u16) -> Option<u32> {
    reply.get(kind)?.u32()
}

fn flag(reply: &Reply, kind: u16) -> bool {
    u8_of(reply, kind).unwrap_or_default() != 0
}

fn to_rings(reply: &Reply) -> Rings {
    let of = |kind| u32_of(reply, kind).unwrap_or_default();
    Rings { rx_max: of(2), rx: of(6) }
}

fn to_channels(reply: &Reply) -> Channels {
    let of = |kind| u32_of(reply, kind).unwrap_or_default();
    Channels { combined_max: of(5), rx: of(6), tx: of(7), combined: of(9) }
}

fn to_coalescing(reply: &Reply) -> Coalescing {
    Coalescing { rx_usecs: u32_of(reply, 2), adaptive: flag(reply, 11) }
}

fn to_features(reply: &Reply) -> Features {
    let names = |kind| reply.get(kind).map(bits).unwrap_or_default();
    let (hardware, fixed): (Vec<String>, Vec<String>) = (names(2), names(5));
    let changeable = hardware.into_iter().filter(|it| !fixed.contains(it)).collect();
    Features { on: names(4).into_iter().collect(), changeable }
}

/// The names of the bits that are set in a bitset with names: without a mask those that it lists,
/// with one those that have a value.
fn bits(bitset: Attribute<'_>) -> Vec<String> {
    let parts: Vec<Attribute<'_>> = bitset.nested().map_while(Result::ok).collect();
    let no_mask = parts.iter().any(|it| it.kind == 1);
    let list = parts.iter().filter(|it| it.kind == 3).flat_map(|it| it.nested());
    let name = |bit: Attribute<'_>| {
        let parts: Vec<Attribute<'_>> = bit.nested().map_while(Result::ok).collect();
        let is_set = no_mask || parts.iter().any(|it| it.kind == 3);
        parts.iter().find(|it| it.kind == 2).filter(|_| is_set).map(|it| it.text())
    };
    list.map_while(Result::ok).filter_map(name).collect()
}

fn to_table(table: Attribute<'_>) -> Vec<u32> {
    table
        .value
        .chunks_exact(4)
        .filter_map(|it| it.try_into().ok().map(u32::from_ne_bytes))
        .collect()
}

/// Linux 6.17 and newer tell.
fn to_fields(reply: &Reply) -> Option<RssFields> {
    let hashes = reply.get(8)?;
    let of = |kind| {
        let mut all = hashes.nested().map_while(Result::ok);
        let mask = all.find(|it| it.kind == kind)?.u64()?;
        Some(FIELDS.iter().filter(|it| mask & 1 << it.0 != 0).map(|it| it.1).collect::<String>())
    };
    Some(RssFields { udp4: of(6)?, udp6: of(7)? })
}

/// Asks the program `ethtool` for what only ioctls tell, of an interface with a device behind it.
pub(super) fn look_by_program(interface: &mut Interface) {
    let name = interface.name.as_str();
    if name.starts_with('-') {
        // It would be taken for an option.
        interface.ntuple = Seen::unseen("`ethtool` is not asked about such a name");
        return;
    }
    if interface.rss_fields == Seen::Value(None) {
        let of = |kind| output(ETHTOOL, &["-n", name, "rx-flow-hash", kind]).map(|it| letters(&it));
        let both = of("udp4").and_then(|udp4| Ok(RssFields { udp4, udp6: of("udp6")? }));
        interface.rss_fields = both.map(Some).into();
    }
    if interface.rss_table == Seen::Value(None) {
        let table = output(ETHTOOL, &["-x", name]);
        interface.rss_table = table.map(|it| Some(table_of(&it))).into();
    }
    interface.ntuple = output(ETHTOOL, &["-n", name]).map(|it| Some(rules(&it))).into();
}

/// The fields as `ethtool -n X rx-flow-hash udp4` prints them.
fn letters(text: &str) -> String {
    let lines = [("IP SA", 's'), ("IP DA", 'd'), ("[0-1]", 'f'), ("[2-3]", 'n')];
    let on = |it: &&(&str, char)| text.lines().any(|line| line.contains(it.0));
    lines.iter().filter(on).map(|it| it.1).collect()
}

/// The queues as `ethtool -x` prints them: `   8:      0     1 ...`.
fn table_of(text: &str) -> Vec<u32> {
    let row = |line: &str| {
        let (first, rest) = line.split_once(':')?;
        first.trim().parse::<u32>().ok()?;
        rest.split_whitespace().map(|it| it.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    text.lines().filter_map(row).flatten().collect()
}

/// The rules as `ethtool -n` prints them: number, destination port and queue of each.
fn rules(text: &str) -> Vec<String> {
    let rule = |part: &str| {
        let number = part.split_whitespace().next()?.parse::<u32>().ok()?;
        let after = |label: &str| {
            let line = part.lines().find(|it| it.trim().starts_with(label))?;
            line.split_once(':')?.1.split_whitespace().next().map(str::to_owned)
        };
        let line = part.lines().find(|it| it.trim().starts_with("Dest port"));
        // A mask of all bits says that the port does not matter.
        let is_any = line.is_none_or(|it| it.contains("mask: 0xffff"));
        let port = after("Dest port").filter(|_| !is_any).unwrap_or_else(|| "any".into());
        // What is no IP takes none of ours.
        if after("Rule Type").is_some_and(|it| it == "Raw") {
            return None;
        }
        let action = part.lines().find_map(|it| it.trim().strip_prefix("Action:"));
        Some(format!("rule {number} port {port} to {}", action.unwrap_or("elsewhere").trim()))
    };
    text.split("Filter:").skip(1).filter_map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prints_of_the_program_are_understood() {
        let fields =
            "UDP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n";
        assert_eq!(letters(fields), "sd");
        let fields = format!("{fields}L4 bytes 0 & 1 [TCP/UDP src port] [0-1]\n[2-3]\n");
        assert_eq!(letters(&fields), "sdfn");
        let table = "RX flow hash indirection table for eth1 with 2 RX ring(s):\n    0:      0     1     0\n\
                     RSS hash key:\n5c:6b\n";
        assert_eq!(table_of(table), [0, 1, 0]);
        let text = "2 RX rings available\nTotal 1 rules\n\nFilter: 1023\n\tRule Type: UDP over IPv4\n\
                    \tDest port: 10472 mask: 0x0\n\tAction: Direct to queue 3\n";
        assert_eq!(rules(text), ["rule 1023 port 10472 to Direct to queue 3"]);
    }
}
