//! What the driver of an interface says of its XDP: generic netlink, family `netdev`, which Linux
//! 6.3 and newer have. Nothing is decided by it; it is for the words of a fallback.

use std::error::Error;

use neli::{
    consts::{nl::NlmF, socket::NlFamily},
    genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, NlattrBuilder},
    nl::NlPayload,
    router::synchronous::NlRouter,
    types::GenlBuffer,
    utils::Groups,
};

/// Numbers from <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/netdev.h>.
const FAMILY: &str = "netdev";
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 8;

/// What the driver offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    /// AF_XDP sockets with zero-copy.
    pub(super) zero_copy: bool,
    /// Whether packets of these may lie in several buffers.
    pub(super) zero_copy_multi_buffer: bool,
}

impl Features {
    /// Those of the interface with this index. `None` if the kernel does not tell.
    pub(super) fn of(index: u32) -> Option<Self> {
        ask(index).ok().flatten()
    }
}

fn ask(index: u32) -> Result<Option<Features>, Box<dyn Error>> {
    let (router, _multicast) = NlRouter::connect(NlFamily::Generic, None, Groups::empty())?;
    let family = router.resolve_genl_family(FAMILY)?;
    let kind = AttrTypeBuilder::default().nla_type(NETDEV_A_DEV_IFINDEX).build()?;
    let index = NlattrBuilder::default().nla_type(kind).nla_payload(index).build()?;
    let request = GenlmsghdrBuilder::default()
        .cmd(NETDEV_CMD_DEV_GET)
        .version(1)
        .attrs([index].into_iter().collect::<GenlBuffer<_, _>>())
        .build()?;
    let answers = router.send::<_, _, u16, Genlmsghdr<u8, u16>>(
        family,
        NlmF::ACK,
        NlPayload::Payload(request),
    )?;
    for answer in answers {
        let answer = answer?;
        let Some(device) = answer.get_payload() else { continue };
        let attributes = device.attrs().get_attr_handle();
        let features = attributes.get_attr_payload_as::<u64>(NETDEV_A_DEV_XDP_FEATURES)?;
        // Linux 6.3 to 6.5 do not tell: there packets lie in one.
        let segments = attributes.get_attr_payload_as::<u32>(NETDEV_A_DEV_XDP_ZC_MAX_SEGS);
        return Ok(Some(Features {
            zero_copy: features & NETDEV_XDP_ACT_XSK_ZEROCOPY != 0,
            zero_copy_multi_buffer: segments.is_ok_and(|segments| segments > 1),
        }));
    }
    Ok(None)
}
