//! Enums whose values are words.

/// Defines an enum with one word for each value: the same in the API, the settings, the store and the
/// metrics.
///
/// ```
/// surehook_types::word_enum! {
///     /// What to do with an answer.
///     pub enum AnswerPolicy {
///         Retry = "retry",
///         /// Give up at once.
///         GiveUp = "give_up",
///     }
/// }
///
/// assert_eq!(AnswerPolicy::GiveUp.as_str(), "give_up");
/// assert_eq!(AnswerPolicy::parse("retry"), Some(AnswerPolicy::Retry));
/// assert_eq!(AnswerPolicy::ALL.len(), 2);
/// ```
#[macro_export]
macro_rules! word_enum {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident = $word:tt,)+
        }
    ) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        $(#[$attribute])*
        pub enum $name {
            $($(#[$variant_attribute])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word for this value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The value with this word.
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
