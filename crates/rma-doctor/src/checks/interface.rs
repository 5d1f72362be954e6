//! The interface as such: link, kind, addresses, XDP, MTU.

use rma_xdp::device::xdp::{Broken, Release, SINGLE_BUFFER_MTU};

use super::{Answer, Answered, Subject, machine::MULTI_BUFFER};
use crate::{setting::Setting, text::quoted};

/// The name of the steering program.
const STEERING_PROGRAM: &str = "rma_steer";

pub(super) fn link(subject: &Subject<'_>) -> Answered {
    let (name, link) = (subject.name(), subject.interface.link.get()?);
    if !link.up {
        return Ok(Answer::mend("down")
            .wanted("up")
            .command(format!("ip link set dev {name} up"))
            .setting(Setting::Up { interface: subject.interface.name.clone(), up: true }));
    }
    if !link.carrier {
        return Ok(Answer::mend("up, without carrier")
            .wanted("a cable, or the other end up")
            .command(format!("ethtool {name}")));
    }
    Ok(match subject.interface.half_duplex.get()? {
        Some(true) => Answer::mend("half duplex")
            .wanted("full duplex")
            .command(format!("ethtool -s {name} autoneg on")),
        _ => Answer::ok("up, with carrier"),
    })
}

pub(super) fn kind(subject: &Subject<'_>) -> Answered {
    let link = subject.interface.link.get()?;
    if !link.ethernet {
        return Ok(Answer::mend("not Ethernet")
            .wanted("an Ethernet interface")
            .why("AF_XDP hosts need Ethernet; the UDP backend does not: --udp ADDRESS"));
    }
    if let (Some(above), Some(kind)) = (&link.above, &link.above_kind)
        && ["bond", "team", "bridge"].contains(&kind.as_str())
    {
        return Ok(Answer::mend(format!("a port of the {kind} {above}"))
            .wanted(above)
            .why(format!(
                "its addresses and frames are those of {above}: attach to that, in generic mode"
            ))
            .command(format!("rma-bench doctor {}", quoted(above))));
    }
    let below = link.below.as_deref().unwrap_or("another");
    Ok(match link.kind.as_deref() {
        Some("vlan") => Answer::note(format!("a VLAN of {below}"))
            .why("hosts here run in generic mode; a host on the interface below does not see this address"),
        Some(kind @ ("bond" | "team")) => Answer::note(kind)
            .why("in native mode nothing arrives on it: hosts here run in generic mode"),
        Some(kind @ ("bridge" | "macvlan" | "ipvlan")) => {
            Answer::note(kind).why("hosts here run in generic mode")
        }
        Some(kind) => Answer::ok(kind),
        None => Answer::ok("a device"),
    })
}

pub(super) fn address(subject: &Subject<'_>) -> Answered {
    let addresses = subject.interface.addresses.get()?;
    let name = subject.name();
    let usable = addresses.iter().filter(|it| !it.tentative && !it.duplicate).count();
    Ok(if addresses.is_empty() {
        Answer::mend("none")
            .wanted("one")
            .command(format!("ip address add ADDRESS/PREFIX dev {name}"))
    } else if addresses.iter().any(|it| it.duplicate) {
        Answer::mend("one that another machine has")
            .wanted("one of its own")
            .command(format!("ip -6 address show dev {name} dadfailed"))
    } else if usable == 0 {
        Answer::mend("none that is usable yet")
            .wanted("one")
            .command(format!("ip address show dev {name} tentative"))
    } else {
        Answer::ok(format!("{usable}"))
    })
}

pub(super) fn xdp_native(subject: &Subject<'_>) -> Answered {
    let link = subject.interface.link.get()?;
    if !link.ethernet {
        return Ok(Answer::does_not_apply("not Ethernet"));
    }
    let kind = link.kind.as_deref();
    if kind == Some("veth") {
        return Ok(Answer::note("offered; hosts choose generic mode")
            .why("on veth generic mode is the faster one"));
    }
    let offer = subject.interface.xdp.get()?;
    Ok(match (offer.basic, offer.redirect, kind) {
        (true, true, _) => Answer::ok("offered"),
        (_, _, Some(_)) => Answer::does_not_apply("the kind runs in generic mode"),
        (true, false, _) => {
            Answer::mend("offered, without redirection").wanted("a driver with both")
        }
        _ => Answer::mend("not offered by the driver").wanted("a driver with XDP"),
    })
}

pub(super) fn zero_copy(subject: &Subject<'_>) -> Answered {
    if subject.is_generic()? {
        return Ok(Answer::does_not_apply("generic mode has none"));
    }
    let offer = subject.interface.xdp.get()?;
    if !offer.zero_copy {
        return Ok(Answer::note("not offered by the driver").why("hosts run in copy mode"));
    }
    let release = Release::of(subject.machine.kernel.get()?);
    let driver = subject.interface.driver.get()?.as_deref().unwrap_or_default();
    if let Some(Broken { driver, .. }) = Broken::of(driver, release) {
        return Ok(Answer::note(format!("that of {driver} is known to lose all frames"))
            .why("hosts do not take it, and run in copy mode"));
    }
    Ok(if offer.zero_copy_segments < 2 && subject.interface.link.get()?.mtu > SINGLE_BUFFER_MTU {
        Answer::note(format!("of packets up to an MTU of {SINGLE_BUFFER_MTU}"))
            .why("hosts run in copy mode with this MTU")
    } else {
        Answer::ok("offered")
    })
}

pub(super) fn other_program(subject: &Subject<'_>) -> Answered {
    let Some(program) = &subject.interface.link.get()?.program else {
        return Ok(Answer::ok("none"));
    };
    let id = program.id;
    Ok(match program.name.as_str() {
        STEERING_PROGRAM => Answer::ok(format!("{STEERING_PROGRAM} of a running host, id {id}")),
        "" => {
            return Err(crate::snapshot::Unseen(format!(
                "an XDP program is there, id {id}, and the kernel does not tell its name to this user"
            )));
        }
        name => Answer::mend(format!("{name:?}, id {id}")).wanted("none").command(format!(
            "ip link set dev {} {} off",
            subject.name(),
            quoted(&program.place)
        )),
    })
}

pub(super) fn mtu(subject: &Subject<'_>) -> Answered {
    let mtu = subject.interface.link.get()?.mtu;
    let ok = Answer::ok(mtu);
    if mtu <= SINGLE_BUFFER_MTU {
        return Ok(ok);
    }
    let is_old = Release::of(subject.machine.kernel.get()?) < MULTI_BUFFER;
    let lacks = if is_old {
        Some("this kernel")
    } else if subject.is_generic()? || subject.interface.xdp.get()?.multi_buffer {
        None
    } else {
        Some("this driver")
    };
    Ok(match lacks {
        None => ok,
        Some(lacks) => Answer::mend(mtu)
            .wanted(format!("at most {SINGLE_BUFFER_MTU}"))
            .why(format!("longer packets need several buffers, which {lacks} does not have"))
            .command(format!("ip link set dev {} mtu {SINGLE_BUFFER_MTU}", subject.name()))
            .setting(Setting::Mtu {
                interface: subject.interface.name.clone(),
                mtu: SINGLE_BUFFER_MTU,
            }),
    })
}
