//! Enums whose values have a string form.

/// Defines an enum with one string for each value: the same in the API, the settings, the store and
/// the metrics.
///
/// ```
/// surehook_types::string_enum! {
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
macro_rules! string_enum {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident = $string:tt,)+
        }
    ) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        $(#[$attribute])*
        pub enum $name {
            $($(#[$variant_attribute])* #[serde(rename = $string)] $variant,)+
        }

        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: [Self; [$($string),+].len()] = [$(Self::$variant),+];

            /// The string of this value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $string,)+
                }
            }

            /// The value with this string.
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $($string => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
