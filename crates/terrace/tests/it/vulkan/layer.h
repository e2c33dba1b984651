// What each Vulkan layer of these tests has: the chain of layers, for one instance and one device. A layer includes it,
// and defines `functions`, its own functions of the device, which end with a NULL, and `begin`.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

struct function { const char * name; PFN_vkVoidFunction function; };

static PFN_vkGetInstanceProcAddr next_instance;
static PFN_vkGetDeviceProcAddr next_device;
static VkInstance instance;
static VkDevice device;

#define NEXT(name) ((PFN_##name) next_device(device, #name))

extern const struct function functions[];

// The device is made.
static void begin(VkPhysicalDevice physical);

// The link of the chain of layers in a structure's list of extensions.
static void * link_of(const void * first, VkStructureType type) {
    for (VkLayerInstanceCreateInfo * info = (void *) first; info; info = (void *) info->pNext) {
        if (info->sType == type && info->function == VK_LAYER_LINK_INFO) {
            return info;
        }
    }
    return NULL;
}

static VkResult create_instance(const VkInstanceCreateInfo * info, const VkAllocationCallbacks * a, VkInstance * out) {
    VkLayerInstanceCreateInfo * chain = link_of(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    next_instance = chain->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    chain->u.pLayerInfo = chain->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance) next_instance(NULL, "vkCreateInstance");
    const VkResult result = create(info, a, out);
    instance = *out;
    return result;
}

static VkResult create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo * info, const VkAllocationCallbacks * a,
        VkDevice * out) {
    VkLayerDeviceCreateInfo * chain = link_of(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    next_device = chain->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    chain->u.pLayerInfo = chain->u.pLayerInfo->pNext;
    PFN_vkCreateDevice create = (PFN_vkCreateDevice) next_instance(instance, "vkCreateDevice");
    const VkResult result = create(physical, info, a, out);
    device = *out;
    if (result == VK_SUCCESS) {
        begin(physical);
    }
    return result;
}

static PFN_vkVoidFunction get_device(VkDevice d, const char * name);

static PFN_vkVoidFunction own(const char * name) {
    static const struct function all[] = {
        { "vkCreateInstance", (PFN_vkVoidFunction) create_instance },
        { "vkCreateDevice", (PFN_vkVoidFunction) create_device },
        { "vkGetDeviceProcAddr", (PFN_vkVoidFunction) get_device },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) == 0) {
            return all[i].function;
        }
    }
    for (const struct function * one = functions; one->name; one++) {
        if (strcmp(one->name, name) == 0) {
            return one->function;
        }
    }
    return NULL;
}

static PFN_vkVoidFunction get_device(VkDevice d, const char * name) {
    const PFN_vkVoidFunction mine = own(name);
    return mine ? mine : next_device(d, name);
}

static PFN_vkVoidFunction get_instance(VkInstance i, const char * name) {
    const PFN_vkVoidFunction mine = own(name);
    return mine ? mine : next_instance(i, name);
}

VkResult vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface * version) {
    version->loaderLayerInterfaceVersion = 2;
    version->pfnGetInstanceProcAddr = get_instance;
    version->pfnGetDeviceProcAddr = get_device;
    version->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
