//! Fake messaging channels: servers on free ports with the paths, checks, responses and errors of the
//! real services.
//!
//! Each one is a [`FakeChannel`], which records every message in order and handles it as scripted: by
//! recipient, for the next messages, or for a share of all recipients. Without a script, every message
//! that the real service would accept is sent.

pub(crate) mod behavior;
pub(crate) mod cloud_api;
pub(crate) mod cloud_status;
pub(crate) mod evolution_api;
pub(crate) mod evolution_errors;
pub(crate) mod evolution_go;
pub(crate) mod fake_channel;
pub(crate) mod form;
pub(crate) mod meta_errors;

pub(crate) use self::{
    behavior::ChannelBehavior,
    cloud_api::CloudApi,
    cloud_status::CloudApiStatus,
    evolution_api::EvolutionApi,
    evolution_go::EvolutionGo,
    fake_channel::{FakeChannel, RecordedMessage},
};
